// The mouse, and fingers.

class Pointer {
  constructor(view) {
    this.view = view;
    this.mouse = kLabels + 200;
    this.drag = null;
    this.fingers = new Map();
    const canvas = view.canvas;
    canvas.addEventListener('wheel', (e) => this.wheel(e), {passive: false});
    canvas.addEventListener('pointerdown', (e) => this.down(e));
    canvas.addEventListener('pointermove', (e) => this.move(e));
    canvas.addEventListener('pointerup', (e) => this.up(e));
    canvas.addEventListener('pointercancel', (e) => this.cancel(e));
    canvas.addEventListener('pointerleave', () => { view.held = null; });
    const strip = (e) => {
      if (!e.buttons) return;
      const at = (e.offsetX - kLabels) / view.width * meta.length;
      const half = (view.wantEnd - view.wantBegin) / 2;
      view.go(at - half, at + half, true);
    };
    view.overview.addEventListener('pointerdown', strip);
    view.overview.addEventListener('pointermove', strip);
  }

  wheel(e) {
    e.preventDefault();
    const view = this.view;
    if (e.ctrlKey) view.zoom(Math.exp(e.deltaY * 0.004), e.offsetX);
    else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) view.pan((e.deltaX || e.deltaY) / view.width);
    else {
      view.scroll += e.deltaY;
      view.redraw();
    }
  }

  down(e) {
    const view = this.view;
    view.canvas.setPointerCapture(e.pointerId);
    this.fingers.set(e.pointerId, e.offsetX);
    const kind = e.offsetX > kLabels && (e.shiftKey || e.offsetY < kTop) ? 'range' : 'move';
    this.drag = {kind, x: e.offsetX, y: e.offsetY, begin: view.wantBegin, end: view.wantEnd, scroll: view.scroll, moved: false};
    view.dragging = true;
    if (this.fingers.size === 2) this.startPinch();
  }
  move(e) {
    const view = this.view, drag = this.drag;
    this.mouse = e.offsetX;
    view.held = e.offsetY;
    if (this.fingers.has(e.pointerId)) this.fingers.set(e.pointerId, e.offsetX);
    if (!drag) return this.hover(e);
    if (drag.kind === 'pinch') return this.pinch();
    if (Math.hypot(e.offsetX - drag.x, e.offsetY - drag.y) > 3) drag.moved = true;
    if (!drag.moved) return;
    if (drag.kind === 'range') {
      const times = [drag.x, e.offsetX].map((x) => Math.min(Math.max(Math.round(view.time(x)), 0), meta.length)).sort((a, b) => a - b);
      view.range = times;
      view.redraw();
      return;
    }
    const by = (drag.x - e.offsetX) / view.scale;
    view.scroll = drag.scroll + drag.y - e.offsetY;
    view.go(drag.begin + by, drag.end + by, true);
  }
  hover(e) {
    const item = e.offsetX > kLabels ? this.view.itemAt(e.offsetX, e.offsetY) : null;
    document.getElementById('under').textContent = e.offsetX > kLabels ? `at ${clockText(this.view.time(e.offsetX))}  ${item ? describe(item) : ''}` : '';
    this.view.canvas.style.cursor = e.offsetY < kTop ? 'col-resize' : item ? 'pointer' : 'default';
  }

  up(e) {
    const view = this.view, drag = this.drag;
    this.cancel(e);
    if (!drag || drag.kind === 'pinch') return;
    if (drag.kind === 'range' && drag.moved) return view.setRange(view.range);
    if (drag.moved) return;
    this.click(e);
  }
  cancel(e) {
    this.fingers.delete(e.pointerId);
    if (this.fingers.size) return;
    this.drag = null;
    this.view.dragging = false;
    this.view.redraw();
  }
  click(e) {
    const view = this.view, lane = view.laneAt(e.offsetY);
    if (lane && lane.kind === 'group') return view.toggle(lane.key);
    if (lane && e.offsetX < kLabels && lane.kind === 'lives') return view.panel.lives({lane});
    if (lane && e.offsetX < kLabels && lane.kind === 'calls') {
      if (!view.low.delete(lane.track.id)) view.low.add(lane.track.id);
      view.makeLanes();
      return view.redraw();
    }
    view.select(view.itemAt(e.offsetX, e.offsetY));
  }

  // Two fingers hold two instants.
  startPinch() {
    const [a, b] = this.fingers.values();
    this.drag = {kind: 'pinch', times: [this.view.time(a), this.view.time(b)]};
  }
  pinch() {
    const [a, b] = this.fingers.values(), [s, t] = this.drag.times;
    if (b === undefined || Math.abs(b - a) < 8) return;
    const each = (t - s) / (b - a);
    if (each <= 0) return;
    const begin = s - (a - kLabels) * each;
    this.view.go(begin, begin + this.view.width * each, true);
  }
}
