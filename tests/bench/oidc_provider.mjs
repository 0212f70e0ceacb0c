// The server of `oidc_provider.py`: clients sign in by a JWT of their own, and are given an EdDSA JWT that has what they
// asked to have signed (RFC 9396). argv: port, the client's key set, the server's own keys.
import process from 'node:process';
import { Provider } from 'oidc-provider';

const [port, clientKeys, ownKeys] = process.argv.slice(2);
const asAsked = (ctx) => JSON.parse(ctx.oidc.params.authorization_details);
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{
    client_id: 'runner',
    grant_types: ['client_credentials'],
    redirect_uris: [],
    response_types: [],
    token_endpoint_auth_method: 'private_key_jwt',
    id_token_signed_response_alg: 'EdDSA',
    authorization_details_types: ['result'],
    jwks: JSON.parse(clientKeys),
  }],
  jwks: JSON.parse(ownKeys),
  scopes: ['tokens:issue'],
  enabledJWA: { clientAuthSigningAlgValues: ['RS256', 'ES256'] },
  features: {
    devInteractions: { enabled: false },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: () => ({
        scope: 'tokens:issue',
        accessTokenFormat: 'jwt',
        jwt: { sign: { alg: 'EdDSA' } },
      }),
    },
    richAuthorizationRequests: {
      enabled: true,
      types: { result: { validate: () => {} } },
      authorizationDetailsForGrantSource: asAsked,
      authorizationDetailsForAccessToken: asAsked,
      authorizationDetailsForIntrospection: asAsked,
    },
  },
});
provider.on('server_error', (_, error) => console.error(error));
provider.listen(Number(port), '127.0.0.1');
