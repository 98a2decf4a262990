// Stack traces in terms of the sources: the code of a component is one bundle.

let lines = { files: [], runs: [] };

/** Sets the places of the bundle's lines, as `build/source-map.js` returns them. */
export function useLines(ofBundle) {
  lines = ofBundle;
}

/** Replaces the lines of the bundle by those of the sources, and removes those of the SDK. */
export function translateStack(stack) {
  const translated = stack.replace(/\/?hatchery-bundle\.js:(\d+)(?::\d+)?/g, (place, number) => {
    const run = lines.runs.findLast(([first]) => first <= Number(number));
    return run ? `${lines.files[run[1]]}:${run[2] + Number(number) - run[0]}` : place;
  });
  return translated.split("\n").filter((line) => !/node_modules\/hatchery-guest\/|hatchery-entry\.js/.test(line)).join("\n");
}
