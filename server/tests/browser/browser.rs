//! A browser that looks at a service.

use std::time::Duration;

use anyqueue_testkit::{Chromedriver, Provided, provide};
use axum::http::Method;
use fantoccini::elements::Element;
use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};
use url::{ParseError, Url};

use crate::bed::Bed;
use crate::client::Client;

/// How long something may take to appear, on a machine that does much else.
const LIMIT: Duration = Duration::from_mins(1);
/// How often is looked whether it has.
const EVERY: Duration = Duration::from_millis(50);

/// One driver for all tests; the browsers end with it.
static DRIVER: OnceCell<Provided> = OnceCell::const_new();
/// A browser is a dozen processes: more at once than this are only slower.
static PLACES: Semaphore = Semaphore::const_new(2);

/// When the document was made, which tells one from the next, also of the same address.
const DOCUMENT: &str = "return performance.timeOrigin";
/// Which document it is, its path, and whether all of it is there.
const ARRIVED: &str = "return [performance.timeOrigin, location.pathname, document.readyState]";

/// A window of its own browser. Whoever needs two takes both at once, so that nobody waits for another one's second.
pub(crate) struct Browser {
    pub(crate) page: fantoccini::Client,
    service: Client,
    _place: Option<SemaphorePermit<'static>>,
}

/// Whether pages may run scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scripts {
    On,
    Off,
}

impl Browser {
    /// Opens one; none where no browser is installed, which was said then.
    pub(crate) async fn open(bed: &Bed, scripts: Scripts) -> Option<Self> {
        let place = PLACES.acquire().await.unwrap();
        Self::start(bed, scripts, Some(place)).await
    }

    /// Opens two that look at the same service.
    pub(crate) async fn two(bed: &Bed) -> Option<(Self, Self)> {
        let place = PLACES.acquire_many(2).await.unwrap();
        let (one, other) =
            tokio::join!(Self::start(bed, Scripts::On, Some(place)), Self::start(bed, Scripts::On, None));
        Some((one?, other?))
    }

    async fn start(bed: &Bed, scripts: Scripts, place: Option<SemaphorePermit<'static>>) -> Option<Self> {
        let url = DRIVER.get_or_init(async || provide(Chromedriver::new()).await.unwrap()).await.url()?;
        let mut builder = ClientBuilder::new(HttpConnector::new());
        builder.capabilities(capabilities(scripts).as_object().unwrap().clone());
        let page = builder.connect(url).await.unwrap();
        Some(Self { page, service: bed.client, _place: place })
    }

    /// Opens a page of the service.
    pub(crate) async fn go(&self, path: &str) {
        self.page.goto(&format!("http://{}{path}", self.service.0)).await.unwrap();
    }

    /// The path and the query of the page.
    pub(crate) async fn place(&self) -> String {
        let url = self.page.current_url().await.unwrap();
        url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()))
    }

    /// Waits for what this path finds.
    pub(crate) async fn find(&self, xpath: &str) -> Element {
        let found = self.page.wait().at_most(LIMIT).every(EVERY).for_element(Locator::XPath(xpath)).await;
        match found {
            Ok(found) => found,
            Err(error) => {
                let text = self.page.find(Locator::Css("body")).await.unwrap().text().await;
                panic!("{xpath}: {error}; the page says: {text:?}")
            }
        }
    }

    /// Waits until the page says this.
    pub(crate) async fn see(&self, text: &str) -> Element {
        self.find(&format!("//body//*[not(self::script)][contains(normalize-space(.), {})]", quoted(text)))
            .await
    }

    /// Whether the page says this now.
    pub(crate) async fn says(&self, text: &str) -> bool {
        self.page.find(Locator::Css("body")).await.unwrap().text().await.unwrap().contains(text)
    }

    /// Opens a page anew until it says this: an overview without a script shows how all stood up to a second ago.
    pub(crate) async fn go_until(&self, path: &str, text: &str) {
        let opening = async {
            self.go(path).await;
            while !self.says(text).await {
                tokio::time::sleep(EVERY).await;
                self.go(path).await;
            }
        };
        tokio::time::timeout(LIMIT, opening).await.unwrap_or_else(|_| panic!("{path} does not say {text:?}"));
    }

    /// Clicks on the link or the button of this name, and waits for the page that this leads to.
    pub(crate) async fn press(&self, name: &str, path: &str) {
        let name = quoted(name);
        self.click_and_arrive(
            &format!("//main//*[self::a or self::button][normalize-space(.)={name}]"),
            path,
        )
        .await;
    }

    /// Clicks, and waits until another document of this path is there: what is looked at next cannot be the page before, also where both have one address.
    pub(crate) async fn click_and_arrive(&self, xpath: &str, path: &str) {
        let before = self.ask(DOCUMENT).await;
        self.click(xpath, &before).await;
        self.arrive(&before, path).await;
    }

    /// Clicks once on what this finds. A page that keeps itself fresh may exchange it meanwhile: then on what stands there now, and while it has the focus it
    /// is not exchanged.
    async fn click(&self, xpath: &str, document: &Value) {
        let clicking = async {
            loop {
                let found = self.find(xpath).await;
                let clicked = async {
                    let this = vec![serde_json::to_value(&found).unwrap()];
                    self.page.execute("arguments[0].focus()", this).await?;
                    found.click().await
                };
                match clicked.await {
                    Ok(()) => return,
                    // Of the page before, if it was clicked all the same.
                    Err(error) if error.is_stale_element_reference() => {
                        if self.ask(DOCUMENT).await != *document {
                            return;
                        }
                    }
                    Err(error) => panic!("{xpath}: {error}"),
                }
            }
        };
        tokio::time::timeout(LIMIT, clicking).await.unwrap_or_else(|_| panic!("{xpath} does not hold still"));
    }

    /// Waits until all of another document is there, of this path.
    pub(crate) async fn arrive(&self, before: &Value, path: &str) {
        let mut last = Value::Null;
        let arriving = async {
            loop {
                // Between two documents there is none that could say anything.
                if let Ok(now) = self.page.execute(ARRIVED, Vec::new()).await {
                    if now[0] != *before && now[1] == path && now[2] == "complete" {
                        return;
                    }
                    last = now;
                }
                tokio::time::sleep(EVERY).await;
            }
        };
        let arrived = tokio::time::timeout(LIMIT, arriving).await;
        arrived.unwrap_or_else(|_| panic!("not at another {path} than {before}, but {last}"));
    }

    /// Which document is shown: for [`Self::arrive`].
    pub(crate) async fn document(&self) -> Value {
        self.ask(DOCUMENT).await
    }

    /// Fills in the field of this label.
    pub(crate) async fn fill(&self, label: &str, value: &str) {
        let path = format!("//label[starts-with(normalize-space(.), {})]//input", quoted(label));
        let field = self.find(&path).await;
        field.clear().await.unwrap();
        field.send_keys(value).await.unwrap();
    }

    /// What a script says of the page: also where the page's own may not run.
    pub(crate) async fn ask(&self, script: &str) -> Value {
        self.page.execute(script, Vec::new()).await.unwrap()
    }

    /// Waits until a script says so.
    pub(crate) async fn until(&self, script: &str) {
        let waiting = async {
            while self.ask(script).await != true {
                tokio::time::sleep(EVERY).await;
            }
        };
        tokio::time::timeout(LIMIT, waiting).await.unwrap_or_else(|_| panic!("{script}"));
    }

    /// Asks the browser itself, by its protocol for developers.
    pub(crate) async fn protocol(&self, command: &str, parameters: Value) -> Value {
        self.command("goog/cdp/execute", &json!({ "cmd": command, "params": parameters })).await
    }

    /// What the browser complained of since it was asked last: errors of scripts, violations of the policy, what could not be loaded.
    pub(crate) async fn complaints(&self) -> Vec<String> {
        let log = self.command("se/log", &json!({ "type": "browser" })).await;
        log.as_array().unwrap().iter().map(ToString::to_string).collect()
    }

    async fn command(&self, name: &'static str, body: &Value) -> Value {
        self.page.issue_cmd(Extra { name, body: body.to_string() }).await.unwrap()
    }

    /// Ends it, after which the browser must have nothing to complain of.
    pub(crate) async fn close(self) {
        assert_eq!(self.complaints().await, [] as [String; 0]);
        self.page.close().await.unwrap();
    }
}

/// What Chromium's driver understands beyond the standard.
#[derive(Debug)]
struct Extra {
    name: &'static str,
    body: String,
}

impl WebDriverCompatibleCommand for Extra {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.name))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.body.clone()))
    }
}

fn capabilities(scripts: Scripts) -> Value {
    // Root has no sandbox, in which Chromium otherwise runs what it shows; what it shows here is ours.
    let arguments = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--window-size=1200,900",
    ];
    let javascript = if scripts == Scripts::On { 1 } else { 2 };
    json!({
        "goog:chromeOptions": { "args": arguments, "prefs": { "profile.managed_default_content_settings.javascript": javascript } },
        "goog:loggingPrefs": { "browser": "ALL" },
    })
}

/// A text within a path: those have no escapes.
fn quoted(text: &str) -> String {
    if text.contains('\'') { format!("\"{text}\"") } else { format!("'{text}'") }
}
