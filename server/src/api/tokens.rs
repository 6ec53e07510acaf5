//! Tokens: who may make which requests.

use std::sync::Arc;
use std::time::Duration;

use anyqueue_control::tokens::{Bound, Fingerprint, Right, Rights, TokenInfo, Tokens as Store};
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::limits::Unreadable;
use crate::app::App;
use crate::manage::conflict;
use crate::problem::{Answer, Problem};
use crate::wire::{Json, Path, time_text};

/// A token, without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Token {
    /// Its name.
    name: String,
    /// What it may do: `push`, `work`, `read`, `payloads`, `manage`, `admin`.
    rights: Vec<&'static str>,
    /// For which queues: names, or beginnings of names followed by a `*`.
    partitions: Vec<String>,
    /// When it was created.
    created_at: String,
    /// Until when it is valid; null: until it is deleted.
    expires_at: Option<String>,
    /// The SHA-256 of each certificate that is bound to it.
    certificates: Vec<String>,
}

impl Token {
    /// The token, with the fingerprints of all certificates that stand for it.
    fn of(info: TokenInfo, bound: &[(String, Fingerprint)]) -> Self {
        let its = bound.iter().filter(|(token, _)| *token == info.name);
        Self {
            certificates: its.map(|(_, certificate)| certificate.to_string()).collect(),
            name: info.name,
            rights: info.rights.rights.iter().map(|right| right.as_str()).collect(),
            partitions: info.rights.partitions,
            created_at: time_text(info.created_at),
            expires_at: info.expires_at.map(time_text),
        }
    }
}

/// All tokens.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenList {
    /// In the order of their names, also those that have expired.
    tokens: Vec<Token>,
    /// Those that cannot be read, and why. They admit nobody.
    unreadable: Vec<Unreadable>,
}

fn store(app: &App) -> Answer<Store> {
    Ok(Store::new(app.store()?.clone()))
}

fn unknown(name: &str) -> Problem {
    Problem::not_found(format!("there is no token {name:?}: see /v1/tokens"))
}

/// Lists the tokens.
#[utoipa::path(
    get, path = "/v1/tokens", operation_id = "list_tokens", tag = "tokens",
    responses((status = 200, description = "The tokens.", body = TokenList))
)]
pub(crate) async fn list(State(app): State<Arc<App>>) -> Answer<Json<TokenList>> {
    let store = store(&app)?;
    let (all, bound) = (store.list().await?, store.certificates().await?);
    Ok(Json(TokenList {
        tokens: all.tokens.into_iter().map(|token| Token::of(token, &bound)).collect(),
        unreadable: all.unreadable.iter().map(Unreadable::of).collect(),
    }))
}

/// A token, without its secret.
#[utoipa::path(
    get, path = "/v1/tokens/{name}", operation_id = "show_token", tag = "tokens",
    params(("name" = String, Path, description = "Its name.")),
    responses((status = 200, description = "The token.", body = Token), (status = 404, description = "There is none.", body = Problem))
)]
pub(crate) async fn show(State(app): State<Arc<App>>, Path(name): Path<String>) -> Answer<Json<Token>> {
    let store = store(&app)?;
    let info = store.get(&name).await?.ok_or_else(|| unknown(&name))?;
    Ok(Json(Token::of(info, &store.certificates().await?)))
}

/// A token to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PutToken {
    /// What it may do: some of `push`, `work`, `read`, `payloads`, `manage`, `admin`.
    rights: Vec<String>,
    /// For which queues: names, or beginnings of names followed by a `*`.
    partitions: Vec<String>,
    /// How long it is valid, in milliseconds; without it, until it is deleted.
    #[serde(default)]
    valid_for_ms: Option<u64>,
}

/// A token that was created.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Created {
    /// Its name.
    name: String,
    /// The secret: it is not stored, and never shown again.
    token: String,
}

/// Creates a token, and shows its secret once. From then on this service requires a token for every request.
#[utoipa::path(
    put, path = "/v1/tokens/{name}", operation_id = "create_token", tag = "tokens",
    params(("name" = String, Path, description = "Its name: a-z, 0-9, `-` and `.`.")),
    request_body = PutToken,
    responses(
        (status = 201, description = "It is created.", body = Created),
        (status = 400, description = "What is wrong with it.", body = Problem),
        (status = 409, description = "There is a token of that name: delete it first.", body = Problem)
    )
)]
pub(crate) async fn put(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    Json(request): Json<PutToken>,
) -> Answer<(StatusCode, Json<Created>)> {
    app.writable()?;
    let rights = request.rights.iter().map(|right| right.parse::<Right>()).collect::<Result<Vec<_>, _>>()?;
    let rights = Rights::new(rights, request.partitions);
    let valid_for = request.valid_for_ms.map(Duration::from_millis);
    let secret = store(&app)?.create(&name, &rights, valid_for).await?;
    let secret = secret.ok_or_else(|| conflict("there is a token of that name: delete it first"))?;
    app.keys.close();
    Ok((StatusCode::CREATED, Json(Created { name, token: secret.text() })))
}

/// Deletes a token, even one that cannot be read. Within a second it admits nobody any more.
#[utoipa::path(
    delete, path = "/v1/tokens/{name}", operation_id = "delete_token", tag = "tokens",
    params(("name" = String, Path, description = "Its name.")),
    responses((status = 204, description = "It is deleted."), (status = 404, description = "There is none.", body = Problem))
)]
pub(crate) async fn delete(State(app): State<Arc<App>>, Path(name): Path<String>) -> Answer<StatusCode> {
    app.writable()?;
    if store(&app)?.delete(&name).await? { Ok(StatusCode::NO_CONTENT) } else { Err(unknown(&name)) }
}

/// Binds a certificate to a token: where clients are asked for certificates, a client that presents it has
/// the token's name and rights.
#[utoipa::path(
    put, path = "/v1/tokens/{name}/certificates/{sha256}", operation_id = "bind_certificate", tag = "tokens",
    params(
        ("name" = String, Path, description = "The token."),
        ("sha256" = String, Path, description = "The SHA-256 of the certificate in DER: 64 hexadecimal digits, with or without colons.")
    ),
    responses(
        (status = 204, description = "It is bound to the token."),
        (status = 400, description = "This is not a SHA-256.", body = Problem),
        (status = 404, description = "There is no such token.", body = Problem),
        (status = 409, description = "It is bound to another token, or this one has expired.", body = Problem)
    )
)]
pub(crate) async fn bind(
    State(app): State<Arc<App>>,
    Path((name, sha256)): Path<(String, String)>,
) -> Answer<StatusCode> {
    app.writable()?;
    match store(&app)?.bind(&name, &sha256.parse::<Fingerprint>()?).await? {
        Bound::Done => Ok(StatusCode::NO_CONTENT),
        Bound::NoToken => Err(unknown(&name)),
        Bound::Expired => Err(conflict(
            "the token has expired, so its certificates admit nobody: delete it and create it again, or bind another",
        )),
        Bound::Taken(other) => {
            Err(conflict(&format!("it is bound to the token {other:?}: unbind it there first")))
        }
        _ => Err(conflict("it is not bound")),
    }
}

/// Unbinds a certificate. Within a second it admits nobody any more.
#[utoipa::path(
    delete, path = "/v1/tokens/{name}/certificates/{sha256}", operation_id = "unbind_certificate", tag = "tokens",
    params(
        ("name" = String, Path, description = "The token."),
        ("sha256" = String, Path, description = "The SHA-256 of the certificate.")
    ),
    responses(
        (status = 204, description = "It is unbound."),
        (status = 404, description = "It was not bound to this token.", body = Problem)
    )
)]
pub(crate) async fn unbind(
    State(app): State<Arc<App>>,
    Path((name, sha256)): Path<(String, String)>,
) -> Answer<StatusCode> {
    app.writable()?;
    let (store, certificate) = (store(&app)?, sha256.parse::<Fingerprint>()?);
    let bound = (name, certificate);
    if store.certificates().await?.contains(&bound) && store.unbind(&certificate).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(Problem::not_found(format!("the certificate {certificate} is not bound to the token {:?}", bound.0)))
}
