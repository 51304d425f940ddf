"""Getting the data sets of the registry: `gemfi data list | info | fetch | verify`.

`gemfi.data` reads what lies in the data folder; here it is downloaded (`fetch.py`), unpacked
(`archives.py`) and compared with what was published (`verify.py`).
"""
