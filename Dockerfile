# A server of one model: docker build -t gemfi . && docker run -p 127.0.0.1:8080:8080 gemfi
# Without an argument it serves the MNIST model that comes with the package. Your own:
# docker run -p 8080:8080 -e GEMFI_TOKEN=... -v "$PWD/model.safetensors:/model.safetensors:ro" gemfi /model.safetensors
FROM python:3.12-slim
WORKDIR /gemfi
COPY . .
RUN pip install --no-cache-dir torch==2.13.0 && pip install --no-cache-dir '.[serve]' -c constraints.txt
RUN useradd --create-home gemfi
USER gemfi
EXPOSE 8080
ENTRYPOINT ["gemfi", "serve", "--host", "0.0.0.0"]
CMD ["mnist-gem-fi", "--without-token"]
