//! Tokens: who may ask for what.

use std::sync::Arc;
use std::time::Duration;

use anyqueue_control::tokens::{Right, Rights, TokenInfo, Tokens as Store};
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
    /// With which queues: names, or beginnings of names with a `*` at their end.
    partitions: Vec<String>,
    /// When it was created.
    created_at: String,
    /// Until when it counts; nothing: until it is deleted.
    expires_at: Option<String>,
}

impl From<TokenInfo> for Token {
    fn from(info: TokenInfo) -> Self {
        Self {
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
    /// Those that cannot be read, and why. They open nothing.
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
    let all = store(&app)?.list().await?;
    Ok(Json(TokenList {
        tokens: all.tokens.into_iter().map(Token::from).collect(),
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
    let info = store(&app)?.get(&name).await?.ok_or_else(|| unknown(&name))?;
    Ok(Json(info.into()))
}

/// A token to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PutToken {
    /// What it may do: some of `push`, `work`, `read`, `payloads`, `manage`, `admin`.
    rights: Vec<String>,
    /// With which queues: names, or beginnings of names with a `*` at their end.
    partitions: Vec<String>,
    /// For how long it counts, in milliseconds; without it, until it is deleted.
    #[serde(default)]
    valid_for_ms: Option<u64>,
}

/// A token that was created.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Created {
    /// Its name.
    name: String,
    /// What is to be shown: it is not kept, and never told again.
    token: String,
}

/// Creates a token, and tells its secret, once. From then on this service asks everybody for a token.
#[utoipa::path(
    put, path = "/v1/tokens/{name}", operation_id = "create_token", tag = "tokens",
    params(("name" = String, Path, description = "What it is called: a-z, 0-9, `-` and `.`.")),
    request_body = PutToken,
    responses(
        (status = 201, description = "It is created.", body = Created),
        (status = 400, description = "What is wrong with it.", body = Problem),
        (status = 409, description = "There is one of that name: delete it first.", body = Problem)
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

/// Deletes a token, also one that cannot be read: within a second nobody is let in with it.
#[utoipa::path(
    delete, path = "/v1/tokens/{name}", operation_id = "delete_token", tag = "tokens",
    params(("name" = String, Path, description = "Its name.")),
    responses((status = 204, description = "It is deleted."), (status = 404, description = "There is none.", body = Problem))
)]
pub(crate) async fn delete(State(app): State<Arc<App>>, Path(name): Path<String>) -> Answer<StatusCode> {
    app.writable()?;
    if store(&app)?.delete(&name).await? { Ok(StatusCode::NO_CONTENT) } else { Err(unknown(&name)) }
}
