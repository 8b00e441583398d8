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

// The milliseconds of a step's parts: roofline_ms of ladder/measure/work.py.
function roofline(step, parts, card, B) {
  const count = (key) => step[key][0] + B * step[key][1];
  return parts.map((part) => {
    const ms = count(`${part}_bytes`) / card.bandwidth / 1e6;
    const flops = `${part}_flops`;
    return flops in step ? Math.max(ms, count(flops) / card[step.unit] / 1e9) : ms;
  });
}

function sum(parts) {
  return parts.reduce((total, ms) => total + ms);
}

// The story on another card.
function calculate({ parts, steps, cards }, menus) {
  const card = cards[menus[0].value];
  const B = Number(menus[1].value);
  const reported = menus.every((menu) => menu.selectedOptions[0].defaultSelected);
  story.classList.toggle("reported", reported);
  const times = [];
  for (const step of steps) times.push(step ? roofline(step, parts, card, B) : times.at(-1));
  const longest = reported ? Number(story.dataset.longest) : sum(times[0]);
  story.querySelectorAll(".rung").forEach((rung, k) => {
    const after = times[k];
    const before = times[k - 1] || after;
    draw(rung.querySelector(".before"), before, after, longest);
    draw(rung.querySelector(".after"), after, after, longest);
    rung.querySelectorAll(".milliseconds li:not([class]) > i + b").forEach((text, i) => {
      const [was, now] = [before[i].toFixed(1), after[i].toFixed(1)];
      text.textContent = was === now ? `${now} ms` : `${was} → ${now} ms`;
    });
    const gain = rung.querySelector(".gain");
    const percent = (sum(before) / sum(after) - 1) * 100;
    const digits = Math.abs(percent) < 0.95 ? 1 : 0;
    if (gain) gain.textContent = percent ? `${percent < 0 ? "" : "+"}${percent.toFixed(digits)} %` : "no change";
  });
  const total = (k) => `${sum(times.at(k)).toFixed(1)} ms`;
  const say = (name, text) => { story.querySelector(name).textContent = text; };
  say(".from", total(0));
  say(".to", total(-1));
  say(".times-as-fast", (sum(times[0]) / sum(times.at(-1))).toFixed(1));
  say(".fits", `${B > card.largest ? "Too little memory" : "Memory"}: ${card.fits}.`);
  story.querySelector(".fits").classList.toggle("over", B > card.largest);
  say(".sheet", [card.rates, card.note].filter(Boolean).join("; "));
}

function draw(step, times, after, longest) {
  if (!step) return;
  step.querySelectorAll(".parts > span").forEach((part, i) => {
    part.style.width = `${100 * times[i] / longest}%`;
    part.style.setProperty("--gone", `${Math.max(0, 100 - 100 * after[i] / times[i])}%`);
  });
  const total = step.querySelector(".total");
  if (total.textContent !== "as 06") total.textContent = `${sum(times).toFixed(1)} ms`;
}

if (story) {
  const numbers = JSON.parse(story.querySelector("script").textContent);
  const menus = [...story.querySelectorAll("select")];
  for (const menu of menus) {
    menu.disabled = false;
    menu.addEventListener("change", () => {
      // A card comes with the largest B that fits its memory, at most 16.
      if (menu === menus[0]) menus[1].value = numbers.cards[menu.value].B;
      calculate(numbers, menus);
    });
  }
}

// What scrolls sideways says so.
const watch = new ResizeObserver((boxes) => {
  for (const { target } of boxes) {
    target.classList.toggle("scrolls", target.scrollWidth > target.clientWidth);
  }
});
for (const box of document.querySelectorAll(".scroll")) watch.observe(box);
follow();
