"use strict";

// Pictures as SVG: axes, curves and points. Colours and dashes come from the style sheet.

const svgElement = (name, attributes = {}, ...children) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};

// Return round numbers from low to high, about `count` of them and at least two, as one alone gives no scale.
function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const first = Math.ceil(low / step - 1e-9);
  const found = [];
  for (let i = first; i * step <= high + 1e-9 * step; i++) found.push(Number((i * step).toPrecision(12)));
  return found.length < 2 ? ticks(low, high, 2 * count) : found;
}

// Return [lowest, highest] of all values, with a margin, and 0 among them.
function rangeOf(...lists) {
  let [low, high] = [0, 0];
  for (const list of lists) {
    for (const value of list) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  const margin = 0.06 * (high - low || 1);
  return [low - (low < 0 ? margin : 0), high + margin];
}

// A picture in an <svg> of the page. It is drawn again when its size changes. A disc has equal units along both axes,
// and the unit circle.
//
// A curve is { y, x, name }: values, the first place and the distance of places along x as [start, step], and a class.
// Points are { re, im, name }. `shown` has the last of what was drawn, for whoever wants the numbers.
class Plot {
  constructor(svg, { x, y, disc = false }) {
    this.svg = svg;
    this.labels = { x, y };
    this.disc = disc;
    new ResizeObserver(() => this.shown && this.draw(this.shown)).observe(svg);
  }

  // x and y are [low, high]; what the picture says in words is for readers who do not see it.
  draw({ x, y, curves = [], points = [], words = "" }) {
    this.shown = { x, y, curves, points, words };
    const [width, height] = [this.svg.clientWidth, this.svg.clientHeight];
    if (!width) return; // not visible
    const box = { left: 52, right: width - 12, top: 10, bottom: height - 40 };
    if (this.disc) {
      const side = Math.min(box.right - box.left, box.bottom - box.top);
      const middle = (box.left + box.right) / 2;
      [box.left, box.right, box.bottom] = [middle - side / 2, middle + side / 2, box.top + side];
    }
    const toX = (value) => box.left + ((value - x[0]) / (x[1] - x[0])) * (box.right - box.left);
    const toY = (value) => box.bottom - ((value - y[0]) / (y[1] - y[0])) * (box.bottom - box.top);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren(
      svgElement("title", {}, words),
      ...this.#axes(box, x, y, toX, toY),
      ...(this.disc ? [svgElement("circle", { class: "circle", cx: toX(0), cy: toY(0), r: toX(1) - toX(0) })] : []),
      ...curves.map((curve) => svgElement("path", { class: `curve ${curve.name}`, d: outline(curve, toX, toY) })),
      ...points.map((group) => svgElement("path", { class: `points ${group.name}`, d: crosses(group, toX, toY) })),
    );
  }

  #axes({ left, right, top, bottom }, x, y, toX, toY) {
    const parts = [];
    const line = (x1, y1, x2, y2, name) => parts.push(svgElement("line", { x1, y1, x2, y2, class: name }));
    const text = (x, y, name, content) => parts.push(svgElement("text", { x, y, class: name }, content));
    for (const value of ticks(...x, Math.max(2, (right - left) / 90))) {
      line(toX(value), top, toX(value), bottom, value === 0 ? "zero" : "grid");
      text(toX(value), bottom + 16, "along", String(value));
    }
    for (const value of ticks(...y, Math.max(2, (bottom - top) / 45))) {
      line(left, toY(value), right, toY(value), value === 0 ? "zero" : "grid");
      text(left - 6, toY(value) + 4, "beside", String(value));
    }
    text((left + right) / 2, bottom + 34, "along label", this.labels.x);
    const middle = (top + bottom) / 2;
    const place = { x: left - 40, y: middle, class: "along label", transform: `rotate(-90 ${left - 40} ${middle})` };
    parts.push(svgElement("text", place, this.labels.y));
    return parts;
  }
}

// Return the path of a curve; what is not a finite number is a gap.
function outline({ y, x: [start, step] }, toX, toY) {
  let path = "";
  let pen = "M";
  for (let i = 0; i < y.length; i++) {
    if (!Number.isFinite(y[i])) {
      pen = "M";
      continue;
    }
    path += `${pen}${toX(start + i * step).toFixed(1)} ${toY(y[i]).toFixed(1)}`;
    pen = "L";
  }
  return path;
}

// Return the path of crosses at complex numbers.
function crosses({ re, im }, toX, toY) {
  const arm = 3;
  return Array.from(re, (_, i) => {
    const [x, y] = [toX(re[i]), toY(im[i])];
    return `M${x - arm} ${y - arm}l${2 * arm} ${2 * arm}M${x - arm} ${y + arm}l${2 * arm} ${-2 * arm}`;
  }).join("");
}
