"use strict";
const sections = [...document.querySelectorAll("main > section")];
const climbs = document.querySelector("header select");

// The address says what is shown: #CLIMB or #CLIMB/RUNG; else it is the first climb.
function follow() {
  let name = "";
  try {
    name = decodeURIComponent(location.hash.slice(1));
  } catch { /* no address of this page */ }
  const target = document.getElementById(name);
  const shown = target?.closest("main > section") || sections[0];
  for (const section of sections) section.hidden = section !== shown;
  climbs.value = shown.id;
  if (target?.matches(".rung")) {
    target.open = true;
    target.firstElementChild.focus({ preventScroll: true });
    target.scrollIntoView();
  }
}

addEventListener("hashchange", follow);
climbs.addEventListener("change", () => { location.hash = encodeURIComponent(climbs.value); });

// An opened rung has an address to copy.
document.addEventListener("toggle", ({ target }) => {
  if (!target.matches(".rung")) return;
  const address = encodeURIComponent(target.id);
  if (!target.open && location.hash !== `#${address}`) return;  // it shows another one
  const { id } = target.open ? target : target.closest("section");
  history.replaceState(null, "", `#${encodeURIComponent(id)}`);
}, true);

document.addEventListener("change", ({ target }) => {
  if (!target.matches(".curves input")) return;
  const curves = target.closest("figure").querySelectorAll(`[data-curve="${target.value}"]`);
  for (const curve of curves) curve.classList.toggle("off", !target.checked);
});

// n and p: the next rung and the previous one.
document.documentElement.classList.add("scripted");
addEventListener("keydown", (event) => {
  const step = { n: 1, p: -1 }[event.key];
  if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("select, input")) return;
  const rungs = [...document.querySelectorAll("main > section:not([hidden]) .rung")];
  const now = rungs.findLastIndex((rung) => rung.open);
  const next = rungs[now + step];
  if (!next) return;
  if (now >= 0) rungs[now].open = false;
  location.hash = encodeURIComponent(next.id);
});

// What scrolls sideways says so.
const watch = new ResizeObserver((boxes) => {
  for (const { target } of boxes) {
    target.classList.toggle("scrolls", target.scrollWidth > target.clientWidth);
  }
});
for (const box of document.querySelectorAll(".scroll")) watch.observe(box);
follow();
