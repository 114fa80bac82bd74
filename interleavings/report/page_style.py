"""How the page of a trace looks and what its keys do. Colours carry nothing that words do not say too."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --paper: #fdfdfb; --ink: #1d2127; --soft: #5d6670; --line: #d8dbdf; --card: #f2f3f1;
  --bad: #b3261e; --bad-paper: #fdeceb; --cut: #2f5fb3; --cut-paper: #e6eefb; --asked-paper: #f3f6fc; --mark: #2f5fb3;
  --ready: #1a6e34; --ready-paper: #e3f3e6; --wait: #7a5a00; --wait-paper: #faf0d2; --work: #2f5fb3; --work-paper:
  #e3ecfa; --done: #5d6670; --done-paper: #eceeef; --spare: #6a3d9a; --spare-paper: #f0e8f8; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171b; --ink: #e4e7ea; --soft: #9aa4ae; --line: #343a42;
  --card: #1c2026; --bad: #ff8a80; --bad-paper: #3a1b1a; --cut: #8ab4f8; --cut-paper: #1b2a42; --asked-paper: #182130;
  --mark: #8ab4f8; --ready: #7fd694; --ready-paper: #17301d; --wait: #e6c45c; --wait-paper: #322a10; --work: #8ab4f8;
  --work-paper: #192840; --done: #9aa4ae; --done-paper: #242930; --spare: #c9a6f0; --spare-paper: #2a2036; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 84rem; padding: 1rem clamp(.75rem, 3vw, 2.5rem) 4rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
code, pre, kbd, .where { font-family: ui-monospace, monospace; font-size: .92em; }
h1 { font-size: clamp(1.25rem, 3vw, 1.7rem); line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.05rem; margin: 0 0 .35rem; } h3 { font-size: 1rem; margin: 0; }
.skip { position: absolute; left: -999rem; } .skip:focus { left: 1rem; top: .5rem; background: var(--paper); padding:
  .5rem; }
.sub { color: var(--soft); margin: .5rem 0 .1rem; }
.verdict { background: var(--bad-paper); border-left: 4px solid var(--bad); padding: .8rem 1rem; border-radius: 0 6px
  6px 0; }
.verdict h2 { color: var(--bad); } .verdict ul { margin: .4rem 0 0; padding-left: 1.2rem; } .sentence { margin: 0; }
.note { border-left: 4px solid var(--wait); background: var(--wait-paper); padding: .6rem 1rem; }
.facts { display: flex; flex-wrap: wrap; gap: .3rem 1.6rem; margin: 1rem 0; }
.facts div { display: flex; gap: .45rem; min-width: 0; } dt { color: var(--soft); flex: none; max-width: 100%; } dd {
  margin: 0; min-width: 0;
  overflow-wrap: anywhere; }
ol { list-style: none; margin: 0; padding: 0; }
.heads, .step { display: grid; grid-template-columns: 2.2rem calc(var(--lanes) * var(--lane)) minmax(0, 1fr);
  column-gap: .8rem; }
.run { --lane: clamp(1.5rem, calc(38vw / var(--lanes)), 7rem); }
@media (max-width: 60rem) { .run { --lane: clamp(.55rem, calc(24vw / var(--lanes)), 1.6rem); }
  .run .heads, .run .step { grid-template-columns: 1.5rem calc(var(--lanes) * var(--lane)) minmax(0, 1fr); } }
.legend { display: none; } @media (max-width: 60rem) { .legend { display: flex; flex-wrap: wrap; gap: .1rem 1rem;
  list-style: none; margin: 0 0 .4rem; padding: 0; font-size: .86rem; } .legend b { color: var(--soft); } }
.heads { position: sticky; top: 0; z-index: 2; background: var(--paper); border-bottom: 1px solid var(--line);
  padding: .45rem 0; align-items: end; }
.rails { display: grid; grid-template-columns: repeat(var(--lanes), var(--lane)); }
.head { text-align: center; font-size: .74rem; line-height: 1.2; min-width: 0; overflow-wrap: normal; }
.head b { display: block; color: var(--soft); }
.head i { font-style: normal; display: block; overflow: hidden; text-overflow: ellipsis; max-height: 9rem; }
.many .head { display: flex; flex-direction: column; align-items: center; justify-content: flex-end; gap: .2rem; }
.many .head b { order: 2; } .many .head i { writing-mode: vertical-rl; transform: rotate(180deg); white-space: nowrap;
  }
.keys { color: var(--soft); font-size: .82rem; } kbd { border: 1px solid var(--line); border-radius: 3px; padding: 0
  .3rem; }
@media (max-width: 60rem) { .head i { display: none; } .keys { display: none; } }
.step { border-bottom: 1px solid var(--line); scroll-margin-top: 4.5rem; }
.step:focus { outline: none; } .step:focus-visible, .step.here { outline: 2px solid var(--mark); outline-offset: -2px;
  }
.number { color: var(--soft); text-align: right; padding-top: .6rem; font-variant-numeric: tabular-nums; }
.rail { position: relative; } .rail::before { content: ""; position: absolute; inset: 0 auto 0 calc(50% - 1px); width:
  2px;
  background: var(--line); }
.rail.on b { position: absolute; left: 50%; top: .55rem; transform: translateX(-50%); background: var(--ink);
  color: var(--paper); border-radius: 1rem; min-width: 1.45rem; padding: 0 .25rem; text-align: center; font-size:
  .8rem;
  line-height: 1.45rem; }
@media (max-width: 60rem) { .rail.on b { min-width: 1.15rem; padding: 0 .1rem; font-size: .7rem; line-height: 1.15rem;
  } }
.what { padding: .55rem 0 .65rem; min-width: 0; }
.who { color: var(--soft); font-weight: 400; margin-left: .3rem; } .where { color: var(--soft); font-weight: 400;
  display: block; overflow-wrap: anywhere; }
pre { margin: .3rem 0; padding: .35rem .6rem; background: var(--card); border-radius: 4px; white-space: pre-wrap;
  overflow-wrap: anywhere; }
.changed { margin: .25rem 0 0; padding: 0; list-style: none; display: flex; flex-wrap: wrap; gap: .1rem 1.2rem; }
.changed li { overflow-wrap: anywhere; } .changed code { color: var(--soft); }
.actions { margin: .25rem 0 0; overflow-wrap: anywhere; }
.standing { display: flex; gap: .5rem; align-items: baseline; margin-top: .4rem; }
.standing ul { display: flex; flex-wrap: wrap; gap: .25rem; margin: 0; padding: 0; list-style: none; min-width: 0; }
.standing li { border-radius: 4px; padding: .02rem .45rem; font-size: .82rem; border: 1px solid transparent; }
.standing li b { font-weight: 600; } .caption { color: var(--cut); font-size: .82rem; white-space: nowrap; }
.unread, .idle { color: var(--soft); border-color: var(--line) !important; }
.waiting { color: var(--wait); background: var(--wait-paper); } .working { color: var(--work); background:
  var(--work-paper); }
.ready, .claimed { color: var(--ready); background: var(--ready-paper); } .claimed { border-color: currentColor
  !important; }
.done, .dropped { color: var(--done); background: var(--done-paper); } .dropped { text-decoration: line-through; }
.spare { color: var(--spare); background: var(--spare-paper); }
.none, .several { color: var(--bad); background: var(--bad-paper); font-weight: 600; }
.image li { border-style: dashed; border-color: var(--cut); }
.standing .concerned { outline: 2px solid var(--bad); outline-offset: -1px; }
.band { background: var(--asked-paper); } .band.open { background: var(--cut-paper); }
.band-open { box-shadow: inset 4px 0 var(--cut); background: linear-gradient(90deg, var(--cut-paper), transparent
  70%); }
.band-asked { box-shadow: inset 4px 0 var(--asked-paper); }
.mark { display: inline-block; color: var(--cut); border: 1px solid var(--cut); border-radius: 1rem; padding: 0 .6rem;
  font-size: .78rem; margin-bottom: .3rem; } .mark.end { margin: .45rem 0 0; border-style: dashed; }
.line h3 { min-width: 0; } .line { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 1rem; }
details { color: var(--soft); font-size: .82rem; } summary { cursor: pointer; } details[open] { flex-basis: 100%; }
details p { margin: .2rem 0; max-width: 48rem; white-space: pre-line; font-size: .9rem; }
.broken { background: var(--bad-paper); box-shadow: inset 4px 0 var(--bad); border-bottom: 2px solid var(--bad); }
.broken .rail.on b { background: var(--bad); } .flag { color: var(--bad); margin: .5rem 0 0; font-weight: 600; }
footer section { margin-top: 1.5rem; } footer ul { padding-left: 1.2rem; } footer li { overflow-wrap: anywhere; }
@media (min-width: 100rem) { body { font-size: 16px; max-width: 104rem; } }
@media print { :root { --paper: #fff; --ink: #000; --soft: #444; --line: #bbb; --card: #f4f4f4; --bad: #a00;
  --bad-paper:
  #fff; --cut: #004; --cut-paper: #eef; --asked-paper: #f6f6ff; --ready: #060; --ready-paper: #fff; --wait: #640;
  --wait-paper: #fff; --work: #004; --work-paper: #fff; --done: #444; --done-paper: #fff; --spare: #406;
  --spare-paper:
  #fff; } body { max-width: none; font-size: 10pt; } .heads { position: static; } .head { font-size: 6.5pt; } .step {
  break-inside: avoid; }
  .keys, .skip, details { display: none; } .standing li { border-color: currentColor !important; } * {
  print-color-adjust:
  exact; } }
@media (prefers-reduced-motion: no-preference) { html { scroll-behavior: smooth; } }
"""

SCRIPT = """
(() => {
  const steps = [...document.querySelectorAll('.step')];
  const at = () => steps.findIndex(step => step.contains(document.activeElement));
  const go = index => {
    const step = steps[Math.max(0, Math.min(steps.length - 1, index))];
    if (step) { step.focus({preventScroll: true}); step.scrollIntoView({block: 'nearest'}); }
  };
  document.addEventListener('keydown', event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'j') go(at() + 1);
    else if (event.key === 'k') go(at() < 0 ? 0 : at() - 1);
    else if (event.key === 'e') go(steps.length - 1);
  });
})();
"""
