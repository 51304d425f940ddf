// Images that were dropped, chosen or pasted.

const MOST = 1024; // pixels of a side that are looked at when a photo is prepared as ink

/** The picture in a file, as the browser reads it; null if it cannot. */
export async function pictureOf(file) {
  try {
    return await createImageBitmap(file);
  } catch {
    return null;
  }
}

/** The bytes of a file in base64. */
export async function base64Of(file) {
  const url = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
  return url.slice(url.indexOf(",") + 1);
}

/** A picture as a grey image; what is transparent is white. */
export function greyOf(picture) {
  const scale = Math.min(1, MOST / Math.max(picture.width, picture.height));
  const [width, height] = [picture.width, picture.height].map((side) =>
    Math.max(1, Math.round(side * scale)));
  const context = new OffscreenCanvas(width, height).getContext("2d");
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  context.drawImage(picture, 0, 0, width, height);
  const { data } = context.getImageData(0, 0, width, height);
  const values = new Float64Array(width * height);
  for (let at = 0; at < values.length; at += 1) {
    values[at] = 0.299 * data[4 * at] + 0.587 * data[4 * at + 1] + 0.114 * data[4 * at + 2];
  }
  return { width, height, values };
}
