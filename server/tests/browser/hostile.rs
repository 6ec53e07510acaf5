//! What a pusher or a worker says is text, wherever it is shown.

use serde_json::json;

use crate::browser::{Browser, Scripts};
use crate::furnished::Furnished;

/// Each would set a mark or open a window if any of it were taken for a part of the page.
const ATTACKS: [&str; 2] = [
    "<script>window.harmed=1</script>\"'><img src=x onerror=\"window.harmed=2\"></title></pre><svg onload=alert(3)>",
    "javascript:alert(4)//' onfocus='alert(5)' autofocus='\" onmouseover=\"alert(6)\" {{7*7}} &lt;b&gt; <style>*{display:none}</style>",
];

/// Whatever of a page could only come from an attack.
const STRANGE: &str = "
    const harm = [...document.querySelectorAll('main script, main img, main style, main iframe, main [autofocus], main link, main svg[onload]')];
    const handlers = [...document.querySelectorAll('*')].filter(e => [...e.attributes].some(a => a.name.startsWith('on')));
    const links = [...document.querySelectorAll('a[href], form[action]')].filter(e => !/^https?:$/.test(new URL(e.href || e.action, location).protocol));
    return { harmed: window.harmed ?? null, strange: [...harm, ...handlers, ...links].map(e => e.outerHTML) };";

/// Whether such a name stands in the page, and beside it this text.
fn shown_beside(element: &str, name: &str, text: &str) -> String {
    format!(
        "const [name, text] = {};
         return [...document.querySelectorAll('{element}')].some(e => e.textContent === name && e.nextElementSibling?.textContent === text)",
        json!([name, text])
    )
}

#[tokio::test]
async fn whatever_others_say_is_inert_on_every_page() {
    for attack in ATTACKS {
        let there = Furnished::with(attack).await;
        let Some(browser) = Browser::open(&there.bed, Scripts::On).await else { return };
        for path in &there.paths {
            // An open window of an alert would be an error here.
            browser.go(path).await;
            browser.find("//main//h1").await;
            assert_eq!(browser.ask(STRANGE).await, json!({ "harmed": null, "strange": [] }), "{path}");
            // Pages that do not exist are reported by the browser; nothing else may be.
            let complaints = browser.complaints().await;
            assert!(complaints.iter().all(|line| line.contains("status of 4")), "{path}: {complaints:?}");
        }
        browser.go(&there.paths[4]).await;
        // The text of a node: what the browser shows of it may have its white space folded. A result is shown as JSON.
        for place in ["dl dd", "pre", "ol li .text"] {
            let shown = format!(
                "const attack = {};
                 const whole = [attack, JSON.stringify(attack)];
                 return [...document.querySelectorAll('{place}')].some(e => whole.some(it => e.textContent.includes(it)))",
                json!(attack)
            );
            browser.until(&shown).await;
        }
        browser.until(&shown_beside("h2", "Log", attack)).await;
        browser.until(&shown_beside("dt", "Trace", attack)).await;
        // Of a task that lives or is dead all headers are shown, with the names that the pusher gave them.
        browser.go(&there.paths[5]).await;
        browser.until(&shown_beside("dt", "traceparent", attack)).await;
        browser.until(&shown_beside("dt", attack, "x")).await;
        browser.close().await;
    }
}

#[tokio::test]
async fn the_policy_blocks_what_would_come_in_all_the_same() {
    let there = Furnished::with("x").await;
    let Some(browser) = Browser::open(&there.bed, Scripts::On).await else { return };
    browser.go("/").await;
    browser
        .ask(
            "window.violated = [];
             document.addEventListener('securitypolicyviolation', e => window.violated.push(e.effectiveDirective));
             const script = document.createElement('script'); script.textContent = 'window.harmed = 1';
             const image = document.createElement('img'); image.src = 'http://127.0.0.1:9/x.png';
             const style = document.createElement('style'); style.textContent = 'body{display:none}';
             document.body.append(script, image, style);",
        )
        .await;
    let blocked =
        "return ['script-src-elem', 'img-src', 'style-src-elem'].every(d => window.violated.includes(d))";
    browser.until(blocked).await;
    assert_eq!(browser.ask("return window.harmed ?? null").await, json!(null));
    assert_eq!(browser.complaints().await.len(), 3);
    browser.close().await;
}
