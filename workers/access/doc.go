// Package access says who is calling: it maps an API key, a signed token of an
// identity provider or a client's certificate to a caller, by one file that is
// read again when it changes.
//
//	anonymous: dev            # tenant of callers without credentials; absent: they are refused
//	tenants:
//	  acme:
//	    keys: [sha256:9f86…]      # digests of API keys, as `surehand key` prints them
//	    certificates: [spiffe://example/acme]
//	    salt: rotated-2026-11     # of its prefix caches; default: its own name
//	    requests_per_second: 50
//	    burst: 100
//	    tokens_in_flight: 200000  # prompt and answer together
//	    max_prompt_bytes: 65536
//	operators:
//	  ops-alice: {keys: [sha256:…]}
//	fleet:                        # gateways and workers, who give readers orders
//	  keys: [sha256:…]
//	tokens:
//	  - issuer: https://id.example
//	    audience: surehand
//	    keys_url: https://id.example/jwks.json   # or keys_file
//	    tenant_claim: org          # its value is a tenant of this file
//	    operator_claim: surehand_operator        # true: an operator
//
// A caller is exactly one of tenant, operator or fleet. What is not in the file
// is refused; a file that cannot be read again leaves the last good one in
// force, and says so.
//
// API keys are drawn at random by `surehand key`, 128 bits and more, so a plain
// digest at rest is enough: there is nothing to guess.
package access
