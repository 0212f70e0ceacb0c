// Finds the token endpoint by its metadata and exchanges a token: reads {issuer, parameters}, writes {token, error, resource}.
import { readFileSync } from "node:fs";
import * as oauth from "oauth4webapi";

const GRANT_TYPE = "urn:ietf:params:oauth:grant-type:token-exchange";
const { issuer, parameters } = JSON.parse(readFileSync(0, "utf-8"));
const options = { [oauth.allowInsecureRequests]: true }; // the issuer of a test has no TLS
const url = new URL(issuer);
const found = await oauth.discoveryRequest(url, { algorithm: "oauth2", ...options });
const server = await oauth.processDiscoveryResponse(url, found);
const client = { client_id: "job" };

async function exchange(given) {
  const answer = await oauth.genericTokenEndpointRequest(server, client, oauth.None(), GRANT_TYPE, given, options);
  return oauth.processGenericTokenEndpointResponse(server, client, answer, { recognizedTokenTypes: { n_a: () => {} } });
}

const token = await exchange(parameters);
const error = await exchange({ ...parameters, subject_token: "x" }).catch(({ error, status }) => ({ error, status }));
const protectedUrl = new URL(`${issuer}/tokens`);
const about = await oauth.resourceDiscoveryRequest(protectedUrl, options);
const resource = await oauth.processResourceDiscoveryResponse(protectedUrl, about);
process.stdout.write(JSON.stringify({ token, error, resource }));
