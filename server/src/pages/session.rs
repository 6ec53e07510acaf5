//! The login page: people enter with a token.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Extension, Form, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use serde::Deserialize;

use super::shell::{Shell, failed, page as answer, with_status};
use crate::app::App;
use crate::noted::Notes;
use crate::peer::Peer;
use crate::sessions::COOKIE;

#[derive(Template)]
#[template(path = "login.html")]
struct Login {
    shell: Shell,
    wrong: bool,
}

fn login(app: &App, wrong: bool) -> Login {
    Login { shell: Shell::new(app, "", "Enter").still(), wrong }
}

pub(crate) async fn page(State(app): State<Arc<App>>) -> Response {
    answer(&login(&app, false))
}

#[derive(Deserialize)]
pub(crate) struct Entered {
    token: String,
}

pub(crate) async fn enter(
    State(app): State<Arc<App>>,
    peer: Option<Extension<Peer>>,
    Form(entered): Form<Entered>,
) -> Response {
    let access = match app.keys.of(entered.token.trim()).await {
        Ok(Some(access)) => access,
        Ok(None) => return with_status(StatusCode::UNAUTHORIZED, &login(&app, true)),
        Err(problem) => return failed(&app, &problem),
    };
    // An attempt without a valid token leaves no entry: such attempts could fill the trail.
    let peer = peer.map(|Extension(peer)| peer);
    match app.trail.begin(&access, peer, "POST", "/login", Notes::default()).await {
        Ok(Some(entered)) => entered.end(StatusCode::SEE_OTHER).await,
        Ok(None) => {}
        Err(problem) => return failed(&app, &problem),
    }
    let session = app.sessions.enter(access);
    let secure = if app.encrypted { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={session}; Path=/; HttpOnly; SameSite=Strict{secure}");
    ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response()
}
