-- Statements about bearer tokens. Parameters are bound in the order in which their names first stand.

-- name: token_columns
-- What a token is read as.
SELECT token_id, secret_hash, hub_project, display_name, role, runtime_id, project_id_prefixes, create_nanos,
       expire_nanos, revoke_nanos
FROM token JOIN hub_project USING (hub_project_key)

-- name: token_is
-- One token.
WHERE token_id = :token_id;

-- name: tokens_of_hub_project
-- A tenant's tokens after one, in the order of their ids.
WHERE hub_project_key = :hub_project_key AND token_id > :after_token_id ORDER BY token_id LIMIT :entries_max;

-- name: tokens_in_order
-- All tokens after one, in the order of their ids.
WHERE token_id > :after_token_id ORDER BY token_id LIMIT :entries_max;

-- name: create_token
-- Keeps a new token.
INSERT INTO token (token_id, hub_project_key, secret_hash, display_name, role, runtime_id, project_id_prefixes,
                   create_nanos, expire_nanos)
VALUES (:token_id, :hub_project_key, :secret_hash, :display_name, :role, :runtime_id, :project_id_prefixes,
        :create_nanos, :expire_nanos);

-- name: revoke_token
-- Takes a token back.
UPDATE token SET revoke_nanos = :revoke_nanos WHERE token_id = :token_id;

-- name: count_tokens
-- How many tokens are kept, revoked and expired ones too.
SELECT count(*) FROM token;

-- name: count_tokens_of_hub_project
-- How many of them are a tenant's.
SELECT count(*) FROM token JOIN hub_project USING (hub_project_key) WHERE hub_project = :hub_project;

-- name: find_other_hub_project
-- Whether there is a tenant besides this one.
SELECT 1 FROM hub_project WHERE hub_project <> :hub_project LIMIT 1;
