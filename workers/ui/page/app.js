"use strict";
// Everything that came from elsewhere is set as text, never as HTML.

const every = 2000; // ms between two looks
const $ = (id) => document.getElementById(id);
const access = { key: sessionStorage.getItem("key") || "", tenant: sessionStorage.getItem("tenant") || "" };
let chosen = decodeURIComponent(location.hash.slice(1));
let looking = null;

function make(tag, className, text, ...children) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (text !== undefined && text !== null) e.textContent = text;
  e.append(...children);
  return e;
}

async function ask(path) {
  const headers = {};
  if (access.key) headers["Authorization"] = "Bearer " + access.key;
  if (access.tenant) headers["X-Surehand-Tenant"] = access.tenant;
  const r = await fetch("api/" + path, { headers, signal: AbortSignal.timeout(10000) });
  const body = await r.json().catch(() => ({}));
  if (r.ok) return body;
  const e = new Error(body.error?.message || "status " + r.status);
  e.status = r.status;
  throw e;
}

const bytes = (n) => {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (n < 1024) return (n >= 10 || unit === "B" ? Math.round(n) : n.toFixed(1)) + " " + unit;
    n /= 1024;
  }
  return n.toFixed(1) + " TiB";
};
const span = (micros) => micros < 1000 ? Math.round(micros) + " µs" : micros < 1e6 ? (micros / 1000).toFixed(1) + " ms" : (micros / 1e6).toFixed(2) + " s";
const ago = (ms) => {
  const s = Math.max(0, (Date.now() - ms) / 1000);
  return s < 60 ? Math.round(s) + " s ago" : s < 3600 ? Math.round(s / 60) + " min ago" : new Date(ms).toLocaleString();
};

function card(e) {
  const used = e.blocks - e.blocks_free;
  const meter = make("div", "meter", null, make("div"));
  meter.firstChild.style.width = (e.blocks ? 100 * used / e.blocks : 0) + "%";
  meter.title = used + " of " + e.blocks + " blocks in use";
  return make("div", "card", null,
    make("h3", "", null, make("span", "", e.engine), make("span", e.cordoned ? "tag cordoned" : "tag", e.cordoned ? "cordoned" : e.role)),
    make("p", "", e.model + " · " + e.node),
    meter,
    make("p", "", used + " of " + e.blocks + " blocks · " + e.running + " running · " + e.waiting + " waiting"),
    ...(e.why ? [make("p", "", e.why)] : []));
}

// queue is one line of what waits where, with a bar of what is used.
function queue(name, used, most, text, waits) {
  const meter = make("div", "meter", null, make("div"));
  meter.firstChild.style.width = (most ? Math.min(100, 100 * used / most) : 0) + "%";
  const track = make("div", "load", null, meter, make("span", "", text));
  track.title = used + " of " + most;
  return make("div", waits ? "lane waits" : "lane", null, make("span", "", name), track);
}

function queues(a) {
  const out = [];
  if (a.admission) {
    const g = a.admission;
    out.push(queue("admission", g.starting, g.starting_most, g.waiting + " waiting · " + g.starting + " of " + g.starting_most + " starting", g.waiting > 0));
    out.push(queue("streams", g.streams, g.streams_most, g.streams + " open", false));
  }
  for (const e of a.engines) {
    const used = e.blocks - e.blocks_free;
    out.push(queue(e.engine + (e.cordoned ? " ⊘" : ""), used, e.blocks,
      e.waiting + " waiting · " + e.running + " running" + (e.promises ? " · " + e.promises + " promised" : "") + " · " + e.blocks_free + " blocks free", e.waiting > 0));
  }
  return out.length ? out : [make("p", "empty", "nothing is registered")];
}

function row(h) {
  const b = make("button", "", null,
    make("span", "status " + h.status, h.status),
    make("span", "id", h.handoff),
    make("span", "when", ago(+h.started_unix_ms)),
    make("span", "about", [h.prefill && h.prefill + " → " + h.decode, h.epoch > 1 && "epoch " + h.epoch, h.phase, h.code, h.model].filter(Boolean).join(" · ")));
  b.type = "button";
  b.addEventListener("click", () => { location.hash = encodeURIComponent(h.handoff); });
  return make("li", "", null, b);
}

function facts(h, temporal) {
  const usage = h.usage || {};
  const all = [["status", h.status + (h.phase ? " · " + h.phase : "")], ["model", h.model], ["engines", h.prefill + " → " + h.decode], ["epoch", h.epoch],
    ["moved", bytes(+h.bytes)], ["prompt", h.usage && usage.prompt_tokens + " tokens: " + usage.direct_tokens + " moved, " + usage.cached_tokens + " cached, " + usage.recomputed_tokens + " recomputed"],
    ["answer", h.usage && usage.completion_tokens + " tokens"], ["refusal", h.code && h.code + (h.detail ? ": " + h.detail : "")],
    ["began", new Date(+h.started_unix_ms).toLocaleString()]];
  const out = [];
  for (const [name, value] of all) if (value) out.push(make("dt", "", name), make("dd", "", value));
  if (temporal) {
    const a = make("a", "", "its workflow in Temporal");
    a.href = temporal + "/workflows/" + encodeURIComponent(h.workflow_id) + "/" + encodeURIComponent(h.run_id);
    a.rel = "noreferrer";
    out.push(make("dt", "", "history"), make("dd", "", null, a));
  }
  return out;
}

function lanes(h) {
  const spans = h.spans || [];
  const last = Math.max(1, ...spans.map((s) => +s.end_micros));
  if (!spans.length) return [make("p", "empty", "no step is recorded yet")];
  return spans.map((s) => {
    const bar = make("div", s.code && s.code !== "none" ? "bar refused" : "bar");
    bar.style.left = 100 * s.start_micros / last + "%";
    bar.style.width = 100 * (s.end_micros - s.start_micros) / last + "%";
    bar.title = [s.engine, s.code, +s.bytes && bytes(+s.bytes)].filter(Boolean).join(" · ");
    const end = make("span", "time", span(s.end_micros - s.start_micros) + (+s.bytes ? " · " + bytes(+s.bytes) : "") + (s.code && s.code !== "none" ? " · " + s.code : ""));
    return make("div", "lane", null, make("span", "", s.step + (s.epoch > 1 ? " e" + s.epoch : "")), make("div", "track", null, bar), end);
  });
}

async function look() {
  clearTimeout(looking);
  const failed = [];
  const part = async (path, show) => {
    try { show(await ask(path)); } catch (e) {
      failed.push(e);
      if (e.status === 401 || e.status === 403) $("access").hidden = false;
    }
  };
  await Promise.all([
    part("fleet", (b) => {
      $("fleet").replaceChildren(...(b.answer.engines.length ? b.answer.engines.map(card) : [make("p", "empty", "no engine is registered")]));
      $("queue").replaceChildren(...queues(b.answer));
    }),
    part("handoffs?status=" + encodeURIComponent($("status").value), (b) => $("list").replaceChildren(...(b.answer.handoffs.length ? b.answer.handoffs.map(row) : [make("li", "empty", "none")]))),
    chosen ? part("handoffs/" + encodeURIComponent(chosen), (b) => {
      $("one-name").textContent = chosen;
      $("facts").replaceChildren(...facts(b.answer, b.temporal));
      $("waterfall").replaceChildren(...lanes(b.answer));
      $("waterfall").setAttribute("aria-label", "steps of the handoff on one time line");
      $("one").hidden = false;
    }) : Promise.resolve($("one").hidden = true),
  ]);
  $("state").textContent = failed.length ? failed[0].message : "as of " + new Date().toLocaleTimeString();
  $("state").className = failed.length ? "bad" : "";
  looking = setTimeout(look, every);
}

$("access").addEventListener("submit", (e) => {
  e.preventDefault();
  access.key = $("key").value;
  access.tenant = $("tenant").value;
  sessionStorage.setItem("key", access.key);
  sessionStorage.setItem("tenant", access.tenant);
  look();
});
$("status").addEventListener("change", look);
$("back").addEventListener("click", () => { location.hash = ""; });
addEventListener("hashchange", () => { chosen = decodeURIComponent(location.hash.slice(1)); look(); scrollTo(0, 0); });
look();
