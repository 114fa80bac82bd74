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
