"use strict";
// Filters the overview and the checks; without it, everything is shown.
(() => {
  const search = document.getElementById("search");
  const boxes = [...document.querySelectorAll("input[name=verdict]")];
  const items = [...document.querySelectorAll("[data-verdict]")];
  const told = document.getElementById("told");
  const total = document.querySelectorAll("tbody [data-verdict]").length;

  function apply() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const verdicts = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    let count = 0;
    for (const item of items) {
      const name = item.dataset.name;
      const fits = verdicts.has(item.dataset.verdict) && words.every((word) => name.includes(word));
      item.hidden = !fits;
      if (fits && item.tagName === "TR") count += 1;
    }
    told.textContent = count === total ? "" : `${count} of ${total} checks shown`;
  }

  function openTarget() {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (target && target.tagName === "DETAILS") {
      target.open = true;
      target.scrollIntoView();
    }
  }

  document.getElementById("controls").hidden = false;
  search.addEventListener("input", apply);
  for (const box of boxes) box.addEventListener("change", apply);
  for (const [id, open] of [["open-all", true], ["close-all", false]]) {
    document.getElementById(id).addEventListener("click", () => {
      for (const check of document.querySelectorAll("details.check")) {
        if (!check.hidden) check.open = open;
      }
    });
  }
  addEventListener("hashchange", openTarget);
  openTarget();
})();
