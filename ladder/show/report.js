"use strict";
const sections = [...document.querySelectorAll("main > section")];
const tabs = [...document.querySelectorAll(".tabs a")];
const climbs = document.querySelector("[name=climb]");
const story = document.querySelector(".story");
document.documentElement.classList.add("with-script");

// The address says what is shown: #CLIMB or #CLIMB/RUNG; else it is the first section.
function follow() {
  let name = "";
  try {
    name = decodeURIComponent(location.hash.slice(1));
  } catch { /* no address of this page */ }
  const target = document.getElementById(name);
  const shown = target?.closest("main > section") || sections[0];
  for (const section of sections) section.hidden = section !== shown;
  for (const tab of tabs) tab.ariaCurrent = (tab === tabs[0]) === (shown === story) ? "page" : null;
  if (climbs) {
    climbs.parentElement.hidden = shown === story;
    climbs.value = shown.id;
  }
  if (target?.matches(".rung")) {
    if ("open" in target) target.open = true;
    target.querySelector("a, summary").focus({ preventScroll: true });
    target.scrollIntoView();
  } else {
    scrollTo(0, 0);
  }
}

addEventListener("hashchange", follow);
climbs?.addEventListener("change", () => { location.hash = encodeURIComponent(climbs.value); });

// An opened rung has an address to copy.
document.addEventListener("toggle", ({ target }) => {
  if (!target.matches(".rung")) return;
  const address = encodeURIComponent(target.id);
  if (!target.open && location.hash !== `#${address}`) return;  // it shows another one
  const { id } = target.open ? target : target.closest("section");
  history.replaceState(null, "", `#${encodeURIComponent(id)}`);
}, true);

// n and p: the next rung and the previous one, also from a menu. In the story the rung is where the
// reader is, in a climb it is the open one.
function isHere(rung) {
  if ("open" in rung) return rung.open;
  const margin = parseFloat(getComputedStyle(rung).scrollMarginTop);
  return rung.getBoundingClientRect().top < margin + 5;
}

addEventListener("keydown", (event) => {
  const step = { n: 1, p: -1 }[event.key];
  if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
  const rungs = [...document.querySelectorAll("main > section:not([hidden]) .rung")];
  const now = rungs.findLastIndex(isHere);
  const next = rungs[now + step];
  if (!next) return;
  event.preventDefault();  // a menu would look for the letter
  if (rungs[now]?.open) rungs[now].open = false;
  history.replaceState(null, "", `#${encodeURIComponent(next.id)}`);
  follow();
});

// What scrolls sideways says so.
const watch = new ResizeObserver((boxes) => {
  for (const { target } of boxes) {
    target.classList.toggle("scrolls", target.scrollWidth > target.clientWidth);
  }
});
for (const box of document.querySelectorAll(".scroll")) watch.observe(box);
follow();
