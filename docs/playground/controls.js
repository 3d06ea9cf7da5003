"use strict";

// Sliders and switches from a table, and links that keep their values in the part of an address behind the #.
//
// A control is { name, label, value, hint } with, for a slider, { min, max, step }; `log: true` for a slider along
// powers of ten, `whole: true` for whole numbers; and without min and max for a switch. `hint` says in words what a value means.

const htmlElement = (name, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
};

// Return whether a text is a value of a slider.
function fits({ min, max, whole }, text) {
  const value = Number(text);
  return text.trim() !== "" && value >= min && value <= max && (!whole || Number.isInteger(value));
}

class Controls {
  #controls;
  #values;
  #changed;

  // Fill a form with controls; `changed(values)` is called at once, and after every change.
  constructor(form, table, note, changed) {
    this.note = note;
    this.#changed = changed;
    this.#controls = new Map(table.map((control) => [control.name, control]));
    this.#values = this.#defaults();
    for (const control of table) {
      form.append(control.min === undefined ? this.#switch(control) : this.#slider(control));
    }
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("change", () => this.#keep());
    addEventListener("hashchange", () => this.read());
    this.read();
  }

  get values() {
    return { ...this.#values };
  }

  // Take the values of the address; what it does not name gets its default.
  read() {
    const complaints = [];
    this.#values = this.#defaults();
    for (const [name, text] of new URLSearchParams(location.hash.slice(1))) {
      const control = this.#controls.get(name);
      if (!control) complaints.push(`there is no setting called ${name}`);
      else if (control.min === undefined) this.#values[name] = text === "1";
      else if (!fits(control, text)) {
        const kind = control.whole ? "a whole number" : "a number";
        complaints.push(`${name} must be ${kind} from ${control.min} to ${control.max}, not ${text}`);
      } else this.#values[name] = Number(text);
    }
    this.note.textContent = complaints.length ? `Parts of this link were left out: ${complaints.join("; ")}.` : "";
    for (const control of this.#controls.values()) control.show();
    this.#changed(this.values);
  }

  #defaults() {
    return Object.fromEntries([...this.#controls.values()].map(({ name, value }) => [name, value]));
  }

  // Only when a drag has ended: browsers limit how often an address may change.
  #keep() {
    const entries = Object.entries(this.#values).map(([name, value]) => [name, String(Number(value))]);
    history.replaceState(null, "", `#${new URLSearchParams(entries)}`);
    this.note.textContent = "";
  }

  #set(control, value) {
    this.#values[control.name] = value;
    control.show();
    this.#changed(this.values);
  }

  #slider(control) {
    const { name, label, min, max, step, log, whole, hint } = control;
    const toPlace = log ? Math.log10 : (value) => value;
    const toValue = (place) => {
      const value = log ? Number((10 ** place).toPrecision(3)) : place;
      return Math.min(max, Math.max(min, whole ? Math.round(value) : value));
    };
    const ends = { min: toPlace(min), max: toPlace(max), step: log ? 0.005 : step };
    const slider = htmlElement("input", { type: "range", id: name, ...ends });
    const exact = htmlElement("input", { type: "number", min, max, step: whole ? 1 : "any", ariaLabel: `${label}, as a number` });
    const words = htmlElement("small", {});
    slider.addEventListener("input", () => {
      this.#set(control, toValue(Number(slider.value)));
    });
    exact.addEventListener("change", () => {
      if (exact.value !== "" && exact.checkValidity()) this.#set(control, Number(exact.value));
      else exact.reportValidity();
    });
    control.show = () => {
      const value = this.#values[name];
      slider.value = toPlace(value);
      exact.value = value;
      words.textContent = hint(value, this.#values);
      slider.ariaValueText = `${value}: ${words.textContent}`;
    };
    const title = htmlElement("label", { htmlFor: name, textContent: label });
    return htmlElement("div", { className: "control" }, title, exact, slider, words);
  }

  #switch(control) {
    const box = htmlElement("input", { type: "checkbox", id: control.name });
    const words = htmlElement("small", {});
    box.addEventListener("input", () => this.#set(control, box.checked));
    control.show = () => {
      box.checked = this.#values[control.name];
      words.textContent = control.hint(box.checked);
    };
    const title = htmlElement("label", {}, box, ` ${control.label}`);
    return htmlElement("div", { className: "control" }, title, words);
  }
}
