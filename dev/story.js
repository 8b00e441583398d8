
// The story on another card. Python wrote the numbers: of each card, B and rung the milliseconds of
// the four parts of a step and of all, and what it gains over the rung before.
function tell({ cards, bytes, reported, padded }, menus) {
  const card = cards[menus[0].value];
  const B = menus[1].value;
  // Tenths of a millisecond.
  const rows = card.ms[B].map((row) => row.split(" ").map((tenths) => tenths / 10));
  const gains = card.gains[B];
  const total = (k) => rows[k][4];
  const asReported = menus[0].value === reported.card && Number(B) === reported.B;
  story.classList.toggle("reported", asReported);
  const say = (root, selector, text) => { root.querySelector(selector).textContent = text; };

  story.querySelectorAll(".line-of-ladder").forEach((line, k) => {
    draw(line.querySelector(".stack"), rows[k], total(0));
    say(line, ".ms", short(total(k)));
    say(line, ".gain", gains[k]);
  });
  story.querySelectorAll(".lanes i").forEach((dot, k) => {
    dot.style.setProperty("--ms", `${total(k)}ms`);
  });
  story.querySelectorAll(".rung:has(.pair)").forEach((rung, k) => {
    const after = rows[k];
    const before = rows[k - 1] || after;
    const full = Math.max(after[4], before[4]);
    draw(rung.querySelector(".after .stack"), after, full);
    if (k !== padded) say(rung, ".now", `${after[4].toFixed(1)} ms`);
    rung.querySelectorAll(".each b").forEach((text, i) => {
      const [was, now] = [before[i].toFixed(1), after[i].toFixed(1)];
      text.textContent = was === now ? `${now} ms` : `${was} → ${now} ms`;
    });
    if (!k) return;
    const why = card.why[k] || (bytes[B][k] + (card.more[k] || ""));
    say(rung, ".reason", k === padded ? bytes[B][k] : `${card.on} at B=${B}: ${gains[k]}, ${why}.`);
    draw(rung.querySelector(".so-far .stack"), after, total(0));
    const gone = Math.max(0, before[4] - after[4]);
    rung.querySelector(".gone").style.setProperty("--w", gone / total(0));
    say(rung, ".so-far .total", `of ${short(total(0))}`);
    draw(rung.querySelector(".before .stack"), before, full, after);
    say(rung, ".before .total", short(before[4]));
    say(rung, ".factor", k === padded ? "" : times(before[4], after[4], gains[k]));
  });
  say(story, ".from", short(total(0)));
  say(story, ".to", short(rows.at(-1)[4]));
  say(story, ".times-as-fast", (total(0) / rows.at(-1)[4]).toFixed(1));
  say(story, ".fits", Number(B) > card.largest ? `Perhaps too little memory: ${card.fits}.` : "");
  say(story, ".sheet", card.rates);
}

// The widths of a bar's parts; `after` says how much of each a change leaves. Rounded parts may add
// up to more than the rounded whole.
function draw(bar, parts, full, after) {
  const sum = parts[0] + parts[1] + parts[2] + parts[3];
  bar.querySelectorAll("[class^=part]").forEach((part, i) => {
    part.style.setProperty("--w", parts[i] / sum * parts[4] / full);
    if (!after) return;
    const gone = Math.max(0, parts[i] - after[i]);
    part.style.setProperty("--gone", `${parts[i] ? 100 * gone / parts[i] : 0}%`);
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
    menu.disabled = false;
    menu.addEventListener("change", () => {
      // A card comes with the largest B that fits its memory, at most 16.
      if (menu === menus[0]) menus[1].value = numbers.cards[menu.value].B;
      tell(numbers, menus);
    });
  }
  const button = story.querySelector(".race button");
  button.addEventListener("click", () => {
    const playing = story.querySelector(".race").classList.toggle("playing");
    button.textContent = playing ? "■ stop" : "▶ race";
    button.ariaPressed = playing;
  });
}
