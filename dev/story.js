
// The story on a card. Python wrote the numbers: of each card, B and rung the tenths of a
// millisecond of the four parts of a step and of all, what it gains, and the number of the reason.
const TOTAL = 4;
const UNKNOWN = "not calculated";

function tell({ cards, why, reported }, menus) {
  const [name, B] = menus.map((menu) => menu.value);
  const card = cards[name];
  const rows = [];
  for (const [a, b, c, d, all, gain, reason] of card.rows[B]) {
    rows.push({ ms: [a, b, c, d, all].map((tenths) => tenths / 10), gain, reason: why[reason] });
  }
  const first = rows[0].ms;
  story.classList.toggle("reported", name === reported[0] && B === reported[1]);
  const say = (root, selector, text) => { root.querySelector(selector).textContent = text; };

  story.querySelectorAll(".line-of-ladder").forEach((line, k) => {
    const { ms, gain } = rows[k];
    draw(line.querySelector(".stack"), ms, first[TOTAL]);
    const number = String(k - 1).padStart(2, "0");
    say(line, ".ms", gain === UNKNOWN ? `as ${number}` : short(ms[TOTAL]));
    say(line, ".gain", gain === UNKNOWN ? "" : gain);
  });
  story.querySelectorAll(".lanes i").forEach((dot, k) => {
    dot.style.setProperty("--ms", `${rows[k].ms[TOTAL]}ms`);
  });
  story.querySelectorAll(".rung:has(.pair)").forEach((rung, k) => {
    const { ms: after, gain, reason } = rows[k];
    const before = (rows[k - 1] || rows[k]).ms;
    const full = Math.max(after[TOTAL], before[TOTAL]);
    draw(rung.querySelector(".after .stack"), after, full);
    say(rung, ".now", gain === UNKNOWN ? "not" : `${after[TOTAL].toFixed(1)} ms`);
    rung.querySelectorAll(".each b").forEach((text, i) => {
      const [was, now] = [before[i].toFixed(1), after[i].toFixed(1)];
      text.textContent = was === now ? `${now} ms` : `${was} → ${now} ms`;
    });
    if (!k) return;
    say(rung, ".reason", `${name} at B=${B}: ${gain}, ${reason}.`);
    draw(rung.querySelector(".so-far .stack"), after, first[TOTAL]);
    const gone = Math.max(0, before[TOTAL] - after[TOTAL]);
    rung.querySelector(".gone").style.setProperty("--w", gone / first[TOTAL]);
    say(rung, ".so-far .total", `of ${short(first[TOTAL])}`);
    draw(rung.querySelector(".before .stack"), before, full, after);
    say(rung, ".before .total", short(before[TOTAL]));
    say(rung, ".factor", gain === UNKNOWN ? "" : times(before[TOTAL], after[TOTAL], gain));
  });
  const last = rows.at(-1).ms;
  say(story, ".from", short(first[TOTAL]));
  say(story, ".to", short(last[TOTAL]));
  say(story, ".times-as-fast", (first[TOTAL] / last[TOTAL]).toFixed(1));
  say(story, ".fits", Number(B) > card.largest ? `Perhaps too little memory: ${card.fits}.` : "");
  say(story, ".sheet", card.rates);
}

// The widths of a bar's parts; `after` says how much of each a change leaves. Rounded parts may add
// up to more than the rounded whole.
function draw(bar, parts, full, after) {
  const sum = parts[0] + parts[1] + parts[2] + parts[3];
  bar.querySelectorAll("[class^=part]").forEach((part, i) => {
    part.style.setProperty("--w", parts[i] / sum * parts[TOTAL] / full);
    if (!after) return;
    const gone = Math.max(0, parts[i] - after[i]);
    const share = parts[i] ? 100 * gone / parts[i] : 0;
    part.style.setProperty("--gone", `${share.toFixed(2)}%`);
    part.querySelector("em").textContent = gone / full > 0.08 ? `−${short(gone)}` : "";
  });
}

function short(ms) {
  return `${ms.toFixed(ms < 9.95 ? 1 : 0)} ms`;
}

function times(before, after, gain) {
  const factor = before / after;
  if (Math.abs(factor - 1) < 0.01) return gain;
  return `${factor.toFixed(factor < 1.995 ? 2 : 1)} times`;
}

if (story) {
  const numbers = JSON.parse(story.querySelector("script").textContent);
  const menus = [...story.querySelectorAll("select")];
  for (const menu of menus) {
    menu.addEventListener("change", () => {
      // A card comes with the largest B that fits its memory, at most 16.
      if (menu === menus[0]) menus[1].value = numbers.cards[menu.value].B;
      tell(numbers, menus);
    });
  }
  tell(numbers, menus);
  follow();  // the words have moved what the address names
  const button = story.querySelector(".race button");
  button.addEventListener("click", () => {
    const playing = story.querySelector(".race").classList.toggle("playing");
    button.textContent = playing ? "■ stop" : "▶ race";
    button.ariaPressed = playing;
  });
}
