/** `howdah mcp`: Howdah as tools for agents. They use the API and nothing else. */
export { serveOverHttp, type HttpFace } from './http.ts';
export { serveOverStdio } from './server.ts';
