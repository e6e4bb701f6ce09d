// What the vendored libraries leave on the page, as tsc needs it.

interface Window {
  echarts: any;
  jsyaml: any;
}
