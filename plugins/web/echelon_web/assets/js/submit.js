// The dialog that takes a job file, as YAML or JSON, and hands it on to be tried.

import { propose } from "./changes.js";
import { script } from "./charts.js";
import { h } from "./dom.js";

const EXAMPLE = `job: bert
parallelism: pipeline
workers: [h1, h2]
pipeline: {micro_batches: 3, forward: 10 ms, activation: 100 kB}
`;

let draft = EXAMPLE;

export async function submitDialog(store, choose) {
  const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("change-dialog"));
  const text = h("textarea", { id: "job-text", spellcheck: "false" });
  text.value = draft;
  const file = h("input", { type: "file", id: "job-file", accept: ".yaml,.yml,.json", onchange: readFile });
  const problem = h("p", { class: "problem", role: "alert" });
  dialog.replaceChildren(
    h("h2", { id: "change-title" }, "Submit a job"),
    h("p", { class: "field block" }, h("label", { for: "job-file" }, "Job file"), file),
    h("p", { class: "field block" }, h("label", { for: "job-text" }, "or its text"), text),
    problem,
    h("div", { class: "buttons" },
      h("button", { type: "button", class: "main", onclick: goOn }, "See what it would do"),
      h("button", { type: "button", onclick: () => dialog.close() }, "Cancel")));
  dialog.showModal();
  text.focus();

  async function readFile() {
    if (file.files.length > 0) text.value = await file.files[0].text();
  }

  async function goOn() {
    draft = text.value;
    problem.textContent = "";
    let job;
    try {
      if (window.jsyaml === undefined) await script("web/vendor/js-yaml.min.js");
      job = window.jsyaml.load(text.value);
    } catch (error) {
      problem.textContent = `This is not YAML: ${error.message}`;
      return;
    }
    if (typeof job !== "object" || job === null || typeof job.job !== "string") {
      problem.textContent = "This is not a job: the key 'job' with its name is missing.";
      return;
    }
    dialog.close();
    const known = store.get("jobs", job.job) !== null;
    propose(store, {
      title: known ? `Replace the job ${job.job}` : `Submit the job ${job.job}`,
      about: known ? "A job of this name is registered. The new one takes its place." : "",
      method: known ? "PUT" : "POST",
      path: known ? `jobs/${encodeURIComponent(job.job)}` : "jobs",
      body: job,
      verb: known ? "Replace" : "Submit",
      done: `The job ${job.job} is accepted.`,
      after: () => choose(job.job),
    });
  }
}
