// The view of policies of a running service: which is in force, what others would mean for each job, and to change it.

import { send } from "./api.js";
import { propose } from "./changes.js";
import { h, setText, show } from "./dom.js";
import { PolicyBars } from "./policy_bars.js";

export function policiesView({ store }) {
  let shown = "";
  let stopped = false;
  const bars = new PolicyBars("forecast of the fluid model");
  const select = h("select", { id: "policy-name", onchange: () => parameters() });
  const fields = h("div", { class: "bar" });
  const now = h("p", {});
  const set = h("button", { type: "button", class: "main", onclick: change }, "Change the policy");
  const compare = h("button", { type: "button", onclick: tryAll }, "Compare all policies");
  const status = h("p", { class: "note", role: "status" }, "Comparing asks the service for a dry run of each policy with its defaults. Nothing is changed.");
  const compared = h("section", { class: "part", hidden: true }, h("h2", {}, "Policies side by side"), bars.element);
  const element = h("div", {},
    h("section", { class: "part" }, h("h2", {}, "Policy in force"), now,
      h("div", { class: "bar" }, h("span", { class: "field" }, h("label", { for: "policy-name" }, "Policy"), select)),
      fields, h("div", { class: "buttons" }, set, compare), status),
    compared);

  function update() {
    const policy = store.get("policy");
    set.disabled = compare.disabled = !store.mayWrite;
    if (policy === null) return;
    const text = `${policy.name} ${Object.entries(policy.parameters).map(([key, value]) => `${key}=${value}`).join(" ")}`.trim();
    setText(now, text);
    if (shown === JSON.stringify(policy)) return;
    shown = JSON.stringify(policy);
    select.replaceChildren(...Object.keys(policy.choices).map((name) => h("option", {}, name)));
    select.value = policy.name;
    parameters();
  }

  function parameters() {
    const policy = store.get("policy");
    const own = policy.name === select.value ? policy.parameters : {};
    fields.replaceChildren(...Object.entries(policy.choices[select.value] ?? {}).map(([name, values]) => field(name, values, own[name])));
  }

  // `values`: the values that a parameter takes, the default first, or the default and a range.
  function field(name, values, value) {
    const id = `parameter-${name}`;
    const ranged = values.length === 2 && values[1].includes(" to ");
    const input = ranged
      ? h("input", { id, name, size: 8, placeholder: values[0], title: values[1] })
      : h("select", { id, name }, values.map((one) => h("option", {}, one)));
    input.value = value ?? (ranged ? "" : values[0]);
    return h("span", { class: "field" }, h("label", { for: id }, ranged ? `${name} (${values[1]})` : name), input);
  }

  function setting() {
    const policy = store.get("policy");
    const chosen = {};
    for (const input of fields.querySelectorAll("input, select")) {
      const [usual] = policy.choices[select.value][input.name];
      if (input.value !== "" && input.value !== usual) chosen[input.name] = input.value;
    }
    return { name: select.value, parameters: chosen };
  }

  function change() {
    propose(store, {
      title: `Change the policy to ${select.value}`,
      about: "All jobs are planned anew.",
      method: "PUT", path: "policy", body: setting(), verb: "Change",
      done: `The policy is ${select.value}.`,
    });
  }

  async function tryAll() {
    compare.disabled = true;
    const found = new Map();
    const failed = [];
    for (const name of Object.keys(store.get("policy").choices)) {
      if (stopped) return;
      setText(status, `Asking about ${name}.`);
      try {
        const { jobs } = await send("PUT", "policy", { name, parameters: {} }, { dryRun: true });
        found.set(name, new Map(jobs.map((job) => [job.job, job.after])));
      } catch (error) {
        failed.push(`${name}: ${error.message}`);
      }
    }
    if (stopped) return;
    compare.disabled = !store.mayWrite;
    setText(status, failed.length ? `Not compared: ${failed.join("; ")}` : "Slowdowns are forecasts of the fluid model, in which all jobs begin together.");
    show(compared, found.size > 0);
    bars.draw(found, store.get("policy").name);
  }

  return {
    element,
    parts: ["hello", "policy"],
    update,
    dispose: () => {
      stopped = true;
      bars.dispose();
    },
  };
}
