// What the pages use of D3, https://d3js.org (d3-LICENSE.txt): the layout of a treemap, and ticks.
// d3.js is made of it, in an empty directory, by
//   npm install d3-hierarchy@3.1.2 d3-array@3.2.4 esbuild@0.25
//   npx esbuild d3.entry.js --bundle --minify --format=iife --global-name=d3 --target=es2020 \
//     --legal-comments=none --outfile=d3.js
export { hierarchy, treemap } from "d3-hierarchy";
export { ticks } from "d3-array";
