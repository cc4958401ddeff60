
// --- begin ----------------------------------------------------------------------------------

const timelineBox = document.getElementById("timeline");
const effectsBox = document.getElementById("effects");
const timeline = timelineBox && PAGE.timelines ? new Timeline(timelineBox, PAGE.timelines) : null;
const effects = effectsBox && PAGE.effects ? new Effects(effectsBox, PAGE.effects, timeline) : null;
if (effects && timeline) effects.marked = PAGE.timelines.subjects[timeline.place];
document.querySelectorAll(".box").forEach(watchWidth);
// Only now: without JavaScript, or should it fail, the pictures stay.
document.documentElement.classList.add("live-page");
