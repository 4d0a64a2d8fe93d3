"use strict";
// The builder: a form from the JSON Schema of an experiment. The server checks every change, as it checks a file.

const { schema, draft } = JSON.parse($("#data").textContent);
delete schema.properties.extends; // of files only
let content, checking;
const panel = $("#preview");
const opened = new Set(["field-market", "field-environment", "field-agent"]);
const FIRST = ["field-name", "field-market-source", "field-market-symbols", "kind-agent", "field-agent-total_timesteps", "kind-splitter", "field-splitter-test_first", "field-splitter-first_test", "field-splitter-test_months", "field-environment-turnover_cost_bps", "field-environment-rewards"]; // what most people set
const WORDS = {
  n: "number of", max: "maximum", min: "minimum", bps: "(bps)", coef: "coefficient", cvar: "CVaR", ent: "entropy", envs: "environments", eps: "epsilon", freq: "frequency", gae: "GAE", grad: "gradient",
  len: "length", lstm: "LSTM", rebal: "rebalancing", rms: "RMS", sft: "SFT", std: "standard deviation", vf: "value function", vol: "volatility",
};
const title = (name) => { const text = name.split("_").map((part) => WORDS[part] ?? part).join(" "); return text[0].toUpperCase() + text.slice(1); };
const labeled = (name) => [title(name), ...(title(name).toLowerCase() === name && name.length > 1 ? [] : [" ", element("code", { textContent: name })])]; // in words, then as in the YAML
const ONE_LINE = /^[^\n]*/;
const resolve = (node) => {
  const { description, ...given } = node, own = { ...(description && { description }), ...("default" in node && { default: node.default }) };
  if (node.$ref) return { ...resolve(schema.$defs[node.$ref.split("/").at(-1)]), ...own };
  const choices = (node.anyOf ?? []).filter(({ type }) => type !== "null");
  return choices.length === 1 ? { ...resolve(choices[0]), ...own, description, nullable: true } : { ...given, ...own };
};
const memberOf = (node, kind) => resolve({ $ref: node.discriminator.mapping[kind] });
const isFamily = (node) => Boolean(node.discriminator);
function filled(node, value) { // with the defaults that the canonical form leaves out
  const full = resolve(node);
  if (value === undefined) value = structuredClone(full.default);
  if (Array.isArray(value) && full.items) return value.map((item) => filled(full.items, item));
  const shape = isFamily(full) ? (value?.kind in full.discriminator.mapping ? memberOf(full, value.kind) : {}) : full;
  if (!shape.properties || value === null || typeof value !== "object") return value;
  for (const [name, inner] of Object.entries(shape.properties)) {
    const complete = filled(inner, value[name]);
    if (complete !== undefined) value[name] = complete;
  }
  return value;
}
const at = (path) => path.reduce((value, part) => value?.[part], content);
function put(path, value) {
  if (at(path.slice(0, -1)) === null) put(path.slice(0, -1), {}); // a part that is left out by default
  const owner = at(path.slice(0, -1));
  value === undefined ? delete owner[path.at(-1)] : (owner[path.at(-1)] = value);
}
function bounds(node) {
  const { maximum, exclusiveMinimum, exclusiveMaximum } = node, minimum = node.type === "integer" && exclusiveMinimum !== undefined ? exclusiveMinimum + 1 : node.minimum, number = (words, bound) => bound !== undefined && `${words} ${Math.abs(bound) < 1000 ? bound : bound.toLocaleString("en-US")}`;
  const range = minimum !== undefined && maximum !== undefined ? [`${number("between", minimum)} ${number("and", maximum)}`] : [number("at least", minimum), minimum === undefined && number("above", exclusiveMinimum), number("at most", maximum), number("below", exclusiveMaximum)];
  const allowed = [node.type === "integer" && "a whole number", range.filter(Boolean).join(" and ")].filter(Boolean).join(" ");
  return [allowed, node.nullable && "may be empty"].filter(Boolean).join(", ");
}

// ---- fields
function field(name, node, path) {
  const full = resolve(node), value = at(path), id = `field-${path.join("-")}`;
  if (isFamily(full)) return family(name, full, path);
  if (full.type === "array" && isFamily(resolve(full.items ?? {}))) return list(name, full, path);
  if (full.properties) return group(name, full, path);
  const rule = name === "name" ? "small letters, digits and hyphens, at most 63" : full.type === "array" ? "separated by commas" : "";
  const hint = [full.description && ONE_LINE.exec(full.description)[0].replace(/^(None|null)( =|:)/, "empty:").replaceAll("`", ""), rule, bounds(full)].filter(Boolean).join("; ");
  const label = element("label", { htmlFor: id }, ...labeled(name)), small = element("small", { textContent: hint, id: `${id}-hint` }), error = element("p", { className: "error", hidden: true });
  error.dataset.path = path.join(".");
  let input;
  if (full.enum || full.type === "boolean") {
    input = element("select", { id }, ...(full.enum ?? [true, false]).map((choice) => element("option", { textContent: String(choice), selected: choice === value })));
    input.addEventListener("change", () => change(path, full.enum ? input.value : input.value === "true"));
  } else {
    const isList = full.type === "array";
    input = element(name === "description" ? "textarea" : "input", { id, value: isList ? (value ?? []).join(", ") : value ?? "", spellcheck: false });
    if (["integer", "number"].includes(full.type)) input.inputMode = "decimal";
    input.addEventListener("change", () => change(path, parse(input.value, full)));
  }
  input.setAttribute("aria-describedby", small.id);
  return element("div", { className: "field" }, label, input, small, error);
}
function parse(text, node) {
  const scalar = (part, { type }) => (["integer", "number"].includes(type) && part.trim() !== "" && !Number.isNaN(Number(part)) ? Number(part) : part);
  if (text.trim() === "" && node.nullable) return null;
  if (node.type === "array") return text.split(node.items && resolve(node.items).type === "string" ? /[\s,]+/ : ",").map((part) => part.trim()).filter(Boolean).map((part, i) => scalar(part, resolve(node.items ?? node.prefixItems?.[i] ?? {})));
  return scalar(text, node);
}
function fields(node, path, skip = []) {
  const parts = Object.entries(node.properties ?? {}).filter(([name]) => name !== "kind" && !skip.includes(name)).map(([name, inner]) => field(name, inner, [...path, name]));
  const small = parts.filter((part) => part.className === "field"), large = parts.filter((part) => part.className !== "field");
  return [...(small.length ? [element("div", { className: "fields" }, ...small)] : []), ...large];
}
function box(name, path, ...children) {
  const error = element("p", { className: "error", hidden: true }), id = `field-${path.join("-")}`;
  error.dataset.path = path.join(".");
  if (path.length > 1) return element("fieldset", { className: "family", id }, element("legend", { textContent: title(name) }), ...children, error);
  const chosen = at(path), kinds = (Array.isArray(chosen) ? chosen : [chosen]).map((value) => value?.kind).filter(Boolean).join(", ");
  return fold(id, title(name), kinds, ...children, error);
}
function fold(id, text, kinds, ...children) {
  const details = element("details", { className: "family", id, open: opened.has(id) }, element("summary", {}, element("b", { textContent: text }), " ", element("span", { className: "soft", textContent: kinds })), ...children);
  details.addEventListener("toggle", () => (details.open ? opened.add(id) : opened.delete(id)));
  return details;
}
function unfold(node) { for (let folded = node.closest("details"); folded; folded = folded.parentElement.closest("details")) folded.open = true; }
const group = (name, node, path) => box(name, path, ...fields(node, path));
function choose(node, path, kind, label) {
  const select = element("select", { id: `kind-${path.join("-")}` }, ...Object.keys(node.discriminator.mapping).map((each) => element("option", { textContent: each, selected: each === kind })));
  select.setAttribute("aria-label", label);
  select.addEventListener("change", () => change(path, filled(node, { kind: select.value }), true));
  return select;
}
function family(name, node, path) {
  const kind = at(path)?.kind, member = kind in node.discriminator.mapping ? memberOf(node, kind) : undefined;
  const line = element("small", { className: "hint", textContent: ONE_LINE.exec(member?.description ?? "")[0] });
  return box(name, path, element("div", { className: "actions" }, choose(node, path, kind, `Kind of ${name.replaceAll("_", " ")}`), line), ...(member ? fields(member, path) : []));
}
function list(name, node, path) {
  const items = at(path) ?? [], of = resolve(node.items);
  const rows = items.map((item, i) => {
    const remove = element("button", { type: "button", className: "plain small", textContent: "Remove" });
    remove.setAttribute("aria-label", `Remove ${item.kind}`);
    remove.addEventListener("click", () => { change(path, items.filter((_, j) => j !== i), true); document.getElementById(`add-${path.join("-")}`).focus(); });
    const row = family(`${name.replaceAll("_", " ")} ${i + 1}`, of, [...path, i]);
    $(".actions", row).append(remove);
    return row;
  });
  const add = element("button", { type: "button", id: `add-${path.join("-")}`, textContent: `Add to ${name.replaceAll("_", " ")}` });
  add.addEventListener("click", () => {
    const taken = items.map(({ kind }) => kind), kinds = Object.keys(of.discriminator.mapping), kind = kinds.find((each) => !taken.includes(each)) ?? kinds[0];
    change(path, [...items, filled(of, { kind })], true);
  });
  return box(name, path, ...rows, element("div", { className: "actions" }, add));
}
function render() {
  const focused = document.activeElement?.id, all = fold("all", "All settings", "", ...fields(schema, []));
  const first = FIRST.map((id) => $(`#${id}`, all)).filter(Boolean).map((input) => {
    if (!input.id.startsWith("kind-")) return input.closest(".field, fieldset");
    input.removeAttribute("aria-label");
    return element("div", { className: "field" }, element("label", { htmlFor: input.id, textContent: title(input.id.slice(5)) }), ...input.parentElement.childNodes);
  });
  const isLarge = (part) => part.matches("fieldset");
  $("#draft").replaceChildren(element("div", { className: "fields" }, ...first.filter((part) => !isLarge(part))), ...first.filter(isLarge), all);
  $$("details.family", all).filter((part) => !$("input, select, textarea, button", part)).forEach((part) => part.remove());
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

// ---- checks by the server
function change(path, value, isStructure = false) {
  put(path, value);
  if (isStructure) render();
  check({ content });
}
const DRAFT = `draft ${location.pathname}${location.search}`; // what a reload or the back button finds again
function keepDraft(kept) { try { kept ? sessionStorage.setItem(DRAFT, JSON.stringify(kept)) : sessionStorage.removeItem(DRAFT); } catch { /* private windows */ } }
function keptDraft() { try { return JSON.parse(sessionStorage.getItem(DRAFT)); } catch { return null; } }
async function check(body) {
  fail(panel, "");
  const mine = (checking = Symbol("check"));
  $("#state").textContent = "checking …";
  let answer;
  try { answer = await post("/lab/build/check", body); } catch (error) { if (mine === checking) show({ problems: { "": error.message }, market_problem: "", version_id: "" }); return; }
  if (mine !== checking) return;
  const isNew = "yaml" in body;
  content = filled(schema, answer.content);
  keepDraft(content);
  if (isNew) render();
  else $("#yaml").value = answer.yaml;
  show(answer);
}
function show({ problems, market_problem, version_id }) {
  const places = new Map($$(".error[data-path]").map((place) => [place.dataset.path, place])), others = [];
  places.forEach((place) => { place.hidden = true; const input = place.parentElement.querySelector("input, select, textarea"); input?.removeAttribute("aria-invalid"); });
  for (const [path, sentence] of Object.entries(problems)) {
    const parts = (path || /^[\w.]+(?=: )/.exec(sentence)?.[0] || "").split("."); // checks of several fields name the one to change
    let place;
    for (let n = parts.length; n && !place; n--) place = places.get(parts.slice(0, n).join("."));
    if (!place) { others.push(sentence); continue; }
    place.textContent = sentence;
    place.hidden = false;
    unfold(place);
    if (place.parentElement.className === "field") $("input, select, textarea", place.parentElement).setAttribute("aria-invalid", "true");
  }
  if (market_problem) others.push(market_problem);
  $("#problems").replaceChildren(...others.map((sentence) => element("li", { textContent: sentence })));
  $("#problems").hidden = !others.length;
  const n = Object.keys(problems).length;
  $("#state").textContent = n ? `${n} problem${n > 1 ? "s" : ""}` : market_problem ? "the market refuses it" : `valid: ${version_id}`;
  $("#state").className = `chip ${n || market_problem ? "warn" : "done"}`;
  $$("#run, [data-preview]").forEach((button) => button.setAttribute("aria-disabled", String(Boolean(n || market_problem))));
}
$("#yaml").addEventListener("input", () => { checking = Symbol("typing"); }); // the answer to an earlier check would undo it
$("#yaml").addEventListener("change", () => check({ yaml: $("#yaml").value }));
$("#draft").addEventListener("submit", (event) => event.preventDefault());

// ---- preview and run
function table(head, rows) {
  return element("table", { className: "tight" }, element("thead", {}, element("tr", {}, ...head.map((text, i) => element("th", { scope: "col", className: i ? "n" : "", textContent: text })))), element("tbody", {}, ...rows.map(([first, ...others]) => element("tr", {}, element("th", { scope: "row", textContent: first }), ...others.map((text) => element("td", { className: "n", textContent: text }))))));
}
const PREVIEWS = {
  reward: ({ steps }) => {
    const terms = Object.keys(steps[0]?.reward_terms ?? {});
    return table(["Session", "Reward", ...terms.map((term) => term.replaceAll("_", " ")), "Net return", "Cost", "Turnover"], steps.map((step) => [step.session, format(step.reward, 4, true), ...terms.map((term) => format(step.reward_terms[term], 4, true)), percent(step.net_return, 2, true), percent(step.cost, 3), percent(step.turnover)]));
  },
  observation: ({ parts }) => table(["Part", "Shape", "Lowest", "Mean", "Highest", "Not finite"], parts.map((part) => [part.name, part.shape.join(" × "), format(part.minimum, 3), format(part.mean, 3), format(part.maximum, 3), String(part.n_not_finite)])),
};
$$("[data-preview]").forEach((button) => button.addEventListener("click", async () => {
  if (button.getAttribute("aria-disabled") === "true") return;
  const kind = button.dataset.preview, place = $("#previewed");
  fail(panel, "");
  button.setAttribute("aria-disabled", "true");
  try { place.replaceChildren(PREVIEWS[kind](await post(`/rl/lab/preview-${kind}`, content))); place.hidden = false; say("The preview is shown."); } catch (error) { place.hidden = true; fail(panel, error.message); }
  button.removeAttribute("aria-disabled");
}));
function done(...children) { const place = $(".done", panel); place.replaceChildren(...children); place.hidden = false; }
$("#run").addEventListener("click", async () => {
  const button = $("#run");
  if (button.getAttribute("aria-disabled") === "true") return;
  fail(panel, "");
  button.setAttribute("aria-disabled", "true");
  done("Registering …");
  try {
    const { version_id } = await post("/rl/experiments", content), { task_id } = await post("/rl/runs", { kind: "train", experiment: version_id });
    const link = element("a", { href: `/lab/runs/${encodeURIComponent(version_id)}`, textContent: `run of ${version_id}` });
    keepDraft(null);
    done("Launched: the ", link, " begins once no other training runs.");
    const stream = new EventSource(`/chat/stream/${task_id}`);
    stream.addEventListener("progress", ({ data }) => {
      const { stage, message, share } = JSON.parse(data);
      done(`${stage}: ${message} `, link);
      if (share !== null) { $("#share").hidden = false; $("#share").value = share; }
      if (stage === "done" || stage === "error") { stream.close(); button.removeAttribute("aria-disabled"); say(`The run is ${stage}.`); }
    });
  } catch (error) { $(".done", panel).hidden = true; fail(panel, error.message); button.removeAttribute("aria-disabled"); }
});

$$(".rail a[href^='#field-']").forEach((link) => link.addEventListener("click", () => { const part = $(link.hash); if (part) unfold(part); }));
const kept = keptDraft();
content = filled(schema, kept ?? draft.content);
render();
$("#yaml").value = draft.yaml;
show(draft);
if (kept) check({ content });
