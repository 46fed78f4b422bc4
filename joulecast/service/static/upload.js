// Files of models: lists of operations are read here; the service lists the operations of all others.
import { upload } from "./api.js";
import { words } from "./calls.js";
import { byId, parseJson, parseShape, shapeText } from "./format.js";

let reading = 0;

/** Whether a file is being read, so that the operations in the form are those of another. */
export const isReading = () => reading > 0;

const say = (text) => { byId("file-help").textContent = text; };

/** Put the operations of a file that is opened into the form, and call `then`. */
export function listenToFiles(then, refuse) {
  byId("file").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    if (!file) return;
    try {
      say(`Reading ${file.name}`);
      reading += 1;
      const network = await read(file).finally(() => { reading -= 1; });
      byId("operations").value = JSON.stringify(network, null, 1);
      say(`${file.name}: ${(network.operations ?? network).length} operations${network.input_shape ? `, input ${shapeText(network.input_shape)}` : ""}.`);
      event.target.value = ""; // so that the same file can be opened again
      then();
    } catch (error) {
      say("");
      event.target.value = "";
      refuse(error);
    }
  });
}

async function read(file) {
  if (/\.json$/i.test(file.name)) {
    const content = parseJson(await file.text(), "this file is no JSON", "a network, as joulecast extract --json writes it, or a config.json");
    if (Array.isArray(content) || content?.operations) return content;
  }
  const { elements } = byId("question");
  const shape = parseShape(byId("file-shape").value);
  const options = [["mode", elements.mode.value], ["precision", byId("precision").value]];
  return upload(file, [...options, ...words(shape).map((text) => ["input_shape", text])]);
}
