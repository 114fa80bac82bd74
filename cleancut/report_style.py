"""How the page of a check looks: light, dark and in print, from a phone to a wide screen."""

STYLE = """
:root { color-scheme: light dark; --paper: #fdfdfb; --ink: #1d2127; --soft: #5d6670; --line: #d8dbdf; --card: #f4f5f3;
  --good: #1a6e34; --good-paper: #e3f3e6; --bad: #b3261e; --bad-paper: #fdeceb; --open: #7a5a00;
  --open-paper: #faf0d2; --link: #2f5fb3; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171b; --ink: #e4e7ea; --soft: #9aa4ae; --line: #343a42;
  --card: #1c2026; --good: #7fd694; --good-paper: #17301d; --bad: #ff8a80; --bad-paper: #3a1b1a; --open: #e6c45c;
  --open-paper: #322a10; --link: #8ab4f8; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; background: var(--paper); color: var(--ink); max-width: 76rem;
  margin: 0 auto; padding: 1rem clamp(.75rem, 3vw, 2.5rem) 4rem; overflow-wrap: anywhere; }
h1 { font-size: clamp(1.3rem, 3vw, 1.7rem); margin: .5rem 0 .3rem; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .5rem; scroll-margin-top: 1rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; } a { color: var(--link); }
a:focus-visible, summary:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; border-radius: 2px; }
p { margin: .4rem 0; max-width: 62rem; } .soft { color: var(--soft); }
nav ul, .cards { display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; list-style: none; padding: 0; margin: .8rem 0; }
.cards { gap: .7rem; display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); }
.cards li { background: var(--card); border-radius: 6px; padding: .6rem .8rem; border-top: 3px solid var(--line); }
.cards li.holds { border-color: var(--good); } .cards li.fails { border-color: var(--bad); }
.cards li.inconclusive, .cards li.bounded { border-color: var(--open); }
.cards b { display: block; } .cards .soft { font-size: .87rem; }
.badge { border-radius: 1rem; padding: .02rem .6rem; font-size: .86rem; white-space: nowrap; }
.badge.holds { color: var(--good); background: var(--good-paper); }
.badge.fails { color: var(--bad); background: var(--bad-paper); font-weight: 600; }
.badge.inconclusive, .badge.bounded { color: var(--open); background: var(--open-paper); font-weight: 600; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th { color: var(--soft); font-weight: 500; font-size: .87rem; vertical-align: bottom; }
th, td { text-align: left; padding: .32rem .7rem .32rem 0; border-bottom: 1px solid var(--line); vertical-align: top;
  }
td.n, th.n { text-align: right; padding-right: 1.6rem; font-variant-numeric: tabular-nums; white-space: nowrap; }
code { font-family: ui-monospace, monospace; font-size: .9em; } tr.zero td { background: var(--open-paper); }
details { margin: .5rem 0; } summary { cursor: pointer; color: var(--link); }
ul.plain { padding-left: 1.2rem; max-width: 62rem; }
@media (max-width: 44rem) { table.stack, .stack tbody, .stack tr, .stack td { display: block; } .stack tr.head {
  display: none; } .stack td { border: 0; padding: .05rem 0; display: inline-block; margin-right: .9rem; text-align:
  left !important; white-space: normal
  !important; } .stack tr { border-bottom: 1px solid var(--line); padding: .45rem 0; } .stack td:first-child {
  display: block; } .stack td[data-name]::before {
  content: attr(data-name) ": "; color: var(--soft); font-size: .87rem; } .stack td:empty { display: none; } }
@media (min-width: 100rem) { body { max-width: 90rem; font-size: 16px; } }
@media print { :root { --paper: #fff; --ink: #000; --soft: #444; --line: #bbb; --card: #fff; --good: #060; --bad:
  #a00;
  --open: #640; --link: #000; } nav { display: none; } body { max-width: none; font-size: 10pt; } tr { break-inside:
  avoid; } details > * { display: block; } }
"""
