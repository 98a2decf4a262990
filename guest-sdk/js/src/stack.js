// Stack traces in terms of the sources: the code of a component is one bundle.

let lines = { files: [], runs: [] };

/** Sets the places of the bundle's lines, as `build/source-map.js` returns them. */
export function useLines(ofBundle) {
  lines = ofBundle;
}

/** A place in the bundle. The engine names a program that the interpreter of development components runs `<input>`. */
const PLACE = /(?:\/?hatchery-bundle\.js|<input>):(\d+)(?::\d+)?/g;

/** Replaces the lines of the bundle by the lines of the sources, and removes the lines of the SDK. */
export function translateStack(stack) {
  const translated = stack.replace(PLACE, (place, number) => {
    const run = lines.runs.findLast(([first]) => first <= Number(number));
    return run ? `${lines.files[run[1]]}:${run[2] + Number(number) - run[0]}` : place;
  });
  return translated.split("\n").filter((line) => !/node_modules\/hatchery-guest\/|hatchery-(?:entry|interpreter)\.js/.test(line)).join("\n");
}
