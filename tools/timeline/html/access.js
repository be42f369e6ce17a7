// The timeline without a pointer: arrow keys go from call to call, and each track is a button that opens or closes it.

class Outline {
  constructor(view) {
    this.view = view;
    this.node = document.getElementById('outline');
    view.outline = this;
    this.fill();
  }
  fill() {
    const focused = document.activeElement && document.activeElement.dataset.key;
    this.node.replaceChildren();
    for (const lane of this.view.lanes) {
      if (lane.kind === 'group') {
        const b = button(lane.name, () => this.view.toggle(lane.key));
        b.dataset.key = lane.key;
        b.setAttribute('aria-expanded', !this.view.closed.has(lane.key));
        this.node.append(b);
        if (lane.key === focused) b.focus();
      } else if (lane.kind === 'lives') {
        this.node.append(button(`list of ${lane.name}: ${grouped(lane.lives.length)}`, () => this.view.panel.lives({lane})));
      }
    }
  }
}

class Walk {
  constructor(view) { this.view = view; }

  // To the caller, the first callee, the one before or after in the row; to the change before or after.
  step(key) {
    const item = this.view.selected, direction = key === 'ArrowLeft' ? -1 : 1;
    const sideways = key === 'ArrowLeft' || key === 'ArrowRight';
    if (item && item.type === 'poke' && sideways) this.view.nextPoke(direction);
    else if (item && item.type === 'gap' && sideways) this.choose(meta.gaps[item.index + direction] && {type: 'gap', index: item.index + direction});
    else if (item && item.type === 'slice') this.choose(this.next(item, key));
    else if (sideways) this.view.pan(direction * 0.2);
    else this.choose(this.first(this.view.lanes.find((l) => l.kind === 'calls')));
  }
  choose(item) {
    if (item) this.view.select(item, true);
    else this.view.say('nothing there');
  }
  next({track, index}, key) {
    const s = track.slices;
    let to = -1;
    if (key === 'ArrowUp') to = this.view.parentOf(track, index);
    else if (key === 'ArrowDown') to = index + 1 < s.count && s.depth[index + 1] > s.depth[index] ? index + 1 : -1;
    else {
      const row = s.rows[s.depth[index]];
      to = row[pointAfter(row, index) - (key === 'ArrowLeft' ? 2 : 0)] ?? -1;
    }
    return to >= 0 ? {type: 'slice', track, index: to} : null;
  }
  // The outermost call of a lane that is in view.
  first(lane) {
    if (!lane) return null;
    const {track} = lane, row = track.slices.rows[0] || [];
    const index = row[firstAbove(row, track.slices.end, this.view.begin)];
    return index === undefined ? null : {type: 'slice', track, index};
  }
  // To the next or previous track, at the same time.
  track(direction) {
    const lanes = this.view.lanes.filter((l) => l.kind === 'calls');
    const item = this.view.selected;
    const now = item && item.track ? lanes.findIndex((l) => l.track === item.track) : direction > 0 ? -1 : lanes.length;
    this.choose(this.first(lanes[now + direction]));
  }
}
