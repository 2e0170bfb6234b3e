/** `howdah mcp`: the cloud as tools for agents, over the API and nothing else. */
export { serveOverHttp, type HttpFace } from './http.ts';
export { serveOverStdio } from './stdio.ts';
