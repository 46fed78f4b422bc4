// The calibration of a board: a file of `joulecast calibrate`, which is sent with every question about its GPU.
import { amend, Refusal } from "./api.js";
import { byId, parseJson } from "./format.js";
import { choose, chosen, find } from "./gpus.js";

const FORM = "what joulecast calibrate --out FILE wrote";
let board = null; // { gpu, content, file }

/** Whether a question is about the GPU of the board, or about all GPUs. */
const concerns = (gpu) => board && (!gpu || find(gpu.replace(/^\d+x /, "")) === board.gpu);

/** Settings of a board, without the calibration where they are for another GPU. */
export const settingsOf = ({ calibration, ...cap }, gpu) => (concerns(gpu) ? { ...cap, calibration } : cap);

/** The name of the file, as calls in Python and on the command line give it. */
export const calibration = () => (board ? { calibration: board.file } : {});

const say = (text) => { byId("calibration-help").textContent = text; byId("no-calibration").hidden = !board; };

/** Read the file that is chosen, and call `then`. */
export function listenToCalibrations(then, refuse) {
  amend(({ calibration: named, ...question }) => (concerns(question.gpu) ? { ...question, calibration: board.content } : question));
  byId("calibration").addEventListener("change", async (event) => {
    try {
      await open(event.target.files[0]);
    } catch (error) {
      forget();
      return refuse(error);
    }
    return then();
  });
  byId("no-calibration").addEventListener("click", () => { forget(); then(); });
}

function forget() {
  board = null;
  byId("calibration").value = "";
  say("");
}

async function open(file) {
  board = null;
  if (!file) return say("");
  const title = "this file is no calibration";
  const content = parseJson(await file.text(), title, FORM);
  const gpu = content?.kind === "joulecast calibration" ? find(String(content.gpu)) : null;
  if (!gpu) throw new Refusal({ field: "calibration", title, given: file.name, allowed: FORM });
  board = { gpu, content, file: file.name };
  if (!chosen.includes(gpu)) choose(gpu);
  return say(`Predictions for ${gpu.short_name} are those of this board. A link does not contain it.`);
}
