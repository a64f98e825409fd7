"use strict";
const slider = document.getElementById("size");
if (slider) {
  const names = slider.dataset.sizes.split(" ");
  const shown = slider.closest(".choice").querySelector("output");
  const show = () => {
    shown.textContent = names[slider.value];
    slider.setAttribute("aria-valuetext", names[slider.value] + " refs");
    for (const table of document.querySelectorAll(".figures")) {
      table.hidden = table.dataset.at !== slider.value;
    }
    for (const line of document.querySelectorAll(".size")) {
      line.classList.toggle("on", line.dataset.at === slider.value);
    }
  };
  slider.closest(".choice").hidden = false;
  slider.addEventListener("input", show);
  show();
}
const said = document.querySelector(".status");
let silence;
for (const button of document.querySelectorAll(".copy")) {
  button.addEventListener("click", async () => {
    const code = button.parentElement.querySelector("code");
    let text = "Copied";
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      // A browser that gives no clipboard to a file: the command is selected, for the reader's own key.
      getSelection().selectAllChildren(code);
      text = "Selected: copy it with your keyboard";
    }
    said.textContent = text;
    clearTimeout(silence);
    silence = setTimeout(() => { said.textContent = ""; }, 3000);
  });
}
