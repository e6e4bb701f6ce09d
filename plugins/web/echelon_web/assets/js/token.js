// The dialog that asks for a token.

import { token } from "./api.js";
import { show } from "./dom.js";

export function tokenDialog(begin) {
  const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("token-dialog"));
  const input = /** @type {HTMLInputElement} */ (document.getElementById("token-input"));
  const problem = document.getElementById("token-problem");
  const button = document.getElementById("token-button");

  function ask(reason = "") {
    problem.textContent = reason;
    show(button, true);
    if (!dialog.open) dialog.showModal();
    input.focus();
  }

  document.getElementById("token-form").addEventListener("submit", () => {
    token.set(input.value.trim());
    input.value = "";
    begin();
  });
  document.getElementById("token-forget").addEventListener("click", () => {
    token.forget();
    input.value = "";
    dialog.close();
    begin();
  });
  button.addEventListener("click", () => ask());
  return ask;
}
