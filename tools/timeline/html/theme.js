// Colours: those of the page come from the style sheet, those of functions show the kind of code.

const kGapColors = {LOST: '#d92d20', FLOW: '#c11574', TEXT: '#dc6803', DATA: '#7a2e0e', SIDE: '#475467', FILE: '#475467'};
const kHues = {kernel: 215, module: 185, user: 140, bpf: 35, trampoline: 300, slot: 330};
const kFound = '#f79009';

let theme;

function readTheme() {
  const style = getComputedStyle(document.documentElement);
  theme = {dark: document.documentElement.dataset.theme === 'dark'};
  for (const name of ['ink', 'dim', 'line', 'grid', 'paper', 'band', 'mark', 'idle', 'sound', 'window', 'density', 'shade', 'stripe', 'range', 'fresh']) {
    theme[name] = style.getPropertyValue('--' + name).trim();
  }
}

function colorOf(hue, saturation, lightness) {
  const part = (n) => {
    const k = (n + hue / 30) % 12;
    const value = lightness - saturation * Math.min(lightness, 1 - lightness) * Math.max(-1, Math.min(k - 3, 9 - k, 1));
    return Math.round(value * 255).toString(16).padStart(2, '0');
  };
  return '#' + part(0) + part(8) + part(4);
}

// As dark as light text on it needs: how bright a colour is depends on its hue, too.
function darkened(color) {
  const parts = [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16) / 255);
  const [r, g, b] = parts.map((v) => v <= 0.04 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const part = Math.min((0.11 / (0.2126 * r + 0.7152 * g + 0.0722 * b)) ** (1 / 2.4), 1);
  return '#' + parts.map((v) => Math.floor(v * part * 255).toString(16).padStart(2, '0')).join('');
}

function mixOf(text) {
  let mix = 0;
  for (let k = 0; k < text.length; ++k) mix = (mix * 31 + text.charCodeAt(k)) >>> 0;
  return mix;
}

// The hue shows the kind of code; shades distinguish functions. Without a symbol, the page of memory is all that is
// known of a function: neighbours have one hue.
function colorsOf(functions) {
  const light = (mix) => theme.dark ? 0.36 + mix % 9 / 100 : 0.77 + mix % 10 / 100;
  const shade = (hue, saturation, mix) => {
    const color = colorOf(hue, saturation, light(mix >>> 11));
    return theme.dark ? darkened(color) : color;
  };
  return functions.map((f) => {
    if (f.kind === 'untraced') return theme.dark ? '#343b47' : '#e4e7ec';
    const mix = mixOf(f.name);
    if (f.kind === 'unnamed') return shade(mixOf(f.name.slice(0, -3)) * 47 % 360, 0.22, mix);
    return shade((kHues[f.kind] + 360 + mix % 37 - 18) % 360, 0.5 + (mix >>> 6) % 25 / 100, mix);
  });
}
function threadColor(tid) { return `hsl(${(tid * 67) % 360} 40% ${theme.dark ? 27 : 86}%)`; }

// '#rrggbb' as a picture has it in memory (of a machine with the low byte first, as all that run browsers).
function pixel(color) {
  const rgb = parseInt(color.slice(1), 16);
  return (0xff000000 | (rgb & 255) << 16 | (rgb & 0xff00) | rgb >> 16) >>> 0;
}
const kFoundPixel = pixel(kFound);
