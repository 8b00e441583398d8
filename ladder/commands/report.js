"use strict";
const sections = [...document.querySelectorAll("main > section")];
const [machines, climbs] = document.querySelectorAll("header select");

// The address says what is shown: #CLIMB, #CLIMB/RUNG or #compare; else it is the first climb.
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

const go = (id) => { location.hash = encodeURIComponent(id); };
addEventListener("hashchange", follow);
climbs.addEventListener("change", () => go(climbs.value));

// Climbs of another machine leave the list and the comparison.
machines.addEventListener("change", () => {
  for (const one of document.querySelectorAll("[name=climb] option, #compare [data-machine]")) {
    const { machine } = one.dataset;
    one.hidden = one.disabled = Boolean(machines.value && machine && machine !== machines.value);
  }
  if (climbs.selectedOptions[0].disabled) go(climbs.querySelector("option:enabled").value);
});

// An opened rung has an address to copy.
document.addEventListener("toggle", ({ target }) => {
  if (!target.matches(".rung")) return;
  const { id } = target.open ? target : target.closest("section");
  history.replaceState(null, "", `#${encodeURIComponent(id)}`);
}, true);

document.addEventListener("change", ({ target }) => {
  if (!target.matches(".curves input")) return;
  const curves = target.closest("figure").querySelectorAll(`[data-curve="${target.value}"]`);
  for (const curve of curves) curve.classList.toggle("off", !target.checked);
});

// What scrolls sideways says so.
const watch = new ResizeObserver((boxes) => {
  for (const { target } of boxes) {
    target.classList.toggle("scrolls", target.scrollWidth > target.clientWidth);
  }
});
for (const box of document.querySelectorAll(".scroll")) watch.observe(box);
follow();
