//! Pages for people who use no mouse, hear instead of see, see little, or hold a phone.

use std::collections::BTreeMap;

use fantoccini::key::Key;
use serde_json::{Value, json};

use crate::browser::{Browser, Scripts};
use crate::furnished::Furnished;

/// Numbers all that can be used, in the order in which it stands there.
const NUMBER_ALL: &str = "
    const all = [...document.querySelectorAll('a[href], button:not([disabled]), input:not([type=hidden], [hidden]), select, summary')];
    all.forEach((element, index) => element.dataset.number = index);
    return all.length;";

/// Which of them has the focus, whether that can be seen, and whether it is in sight.
const FOCUSED: &str = "
    const element = document.activeElement, style = getComputedStyle(element), box = element.getBoundingClientRect();
    return [element.dataset.number ?? null, style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
        box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth, element.outerHTML.slice(0, 200)];";

#[tokio::test]
async fn all_is_reached_by_tab_in_its_order_and_the_focus_is_seen() {
    let there = Furnished::with("some text").await;
    // Without scripts, so that nothing is exchanged while its order is counted.
    let Some(browser) = Browser::open(&there.bed, Scripts::Off).await else { return };
    for path in &there.paths {
        browser.go(path).await;
        let count = browser.ask(NUMBER_ALL).await.as_u64().unwrap();
        assert!(count >= 6, "{path}: {count}");
        let mut next = 0;
        // Boxes that scroll take the focus too, so that arrows can scroll them.
        for _ in 0..3 * count {
            browser.page.active_element().await.unwrap().send_keys(&Key::Tab).await.unwrap();
            let focused = browser.ask(FOCUSED).await;
            if focused[0].is_null() {
                continue;
            }
            assert_eq!(focused[0], next.to_string(), "{path}: {focused}");
            assert_eq!((&focused[1], &focused[2]), (&json!(true), &json!(true)), "{path}: {focused}");
            next += 1;
            if next == count {
                break;
            }
        }
        assert_eq!(next, count, "{path}");
    }
    browser.page.close().await.unwrap();
}

#[tokio::test]
async fn the_first_tab_leads_past_the_navigation_and_return_presses_a_button() {
    let there = Furnished::with("some text").await;
    let Some(browser) = Browser::open(&there.bed, Scripts::On).await else { return };
    browser.go("/partitions/mail").await;
    let press = async |key: Key| browser.page.active_element().await.unwrap().send_keys(&key).await.unwrap();
    press(Key::Tab).await;
    assert_eq!(browser.ask("return document.activeElement.textContent").await, "To the content");
    press(Key::Enter).await;
    browser.until("return document.activeElement.id === 'main'").await;
    while browser.ask("return document.activeElement.textContent").await != "Pause" {
        press(Key::Tab).await;
    }
    let document = browser.document().await;
    press(Key::Enter).await;
    browser.arrive(&document, "/partitions/mail").await;
    browser.see("It is paused and delivers nothing.").await;
    assert!(there.bed.queue.is_paused("mail").await.unwrap());
    browser.close().await;
}

/// What there is for a reader of screens: role and name.
async fn heard(browser: &Browser) -> Vec<(String, String)> {
    let tree = browser.protocol("Accessibility.getFullAXTree", json!({})).await;
    let text = |node: &Value, what: &str| node[what]["value"].as_str().unwrap_or_default().to_owned();
    let nodes = tree["nodes"].as_array().unwrap().iter().filter(|node| node["ignored"] != true);
    nodes.map(|node| (text(node, "role"), text(node, "name"))).collect()
}

#[tokio::test]
async fn a_reader_of_screens_finds_landmarks_headings_and_a_name_for_everything() {
    let there = Furnished::with("some text").await;
    let Some(browser) = Browser::open(&there.bed, Scripts::Off).await else { return };
    let mut all: BTreeMap<String, usize> = BTreeMap::new();
    for path in &there.paths {
        browser.go(path).await;
        assert_eq!(browser.ask("return document.documentElement.lang").await, "en");
        let heard = heard(&browser).await;
        let count = |role: &str| heard.iter().filter(|(of, _)| of == role).count();
        for landmark in ["banner", "navigation", "main", "contentinfo"] {
            assert_eq!(count(landmark), 1, "{landmark} of {path}: {heard:?}");
        }
        let firsts = browser.ask("return document.querySelectorAll('h1').length").await;
        assert_eq!(firsts, 1, "{path}");
        for (role, name) in &heard {
            let is_to_be_named = [
                "button",
                "link",
                "textbox",
                "combobox",
                "columnheader",
                "rowheader",
                "heading",
                "img",
                "image",
                "navigation",
                "RootWebArea",
            ];
            if is_to_be_named.contains(&role.as_str()) {
                assert!(!name.trim().is_empty(), "a {role} without a name on {path}: {heard:?}");
                *all.entry(role.clone()).or_default() += 1;
            }
        }
        assert_eq!(count("table") > 0, count("columnheader") > 0, "{path}: {heard:?}");
        assert_eq!(count("table") > 0, count("rowheader") > 0, "{path}: {heard:?}");
    }
    for role in ["button", "link", "textbox", "combobox", "columnheader", "rowheader", "heading"] {
        assert!(all.contains_key(role), "{role}: {all:?}");
    }
    browser.page.close().await.unwrap();
}

/// Texts with less than the contrast that WCAG 2 asks for (4.5 to 1), each with what it has.
const FAINT: &str = "
    const channel = c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
    const colour = text => text.match(/[\\d.]+/g).map(Number);
    const ground = e => { for (; e; e = e.parentElement) { const c = colour(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
    const ink = e => { const s = getComputedStyle(e); return colour(e.namespaceURI.endsWith('svg') ? s.fill : s.color); };
    const texts = [...document.body.querySelectorAll('*')].filter(e => !e.closest('.skip, [hidden], [disabled], script')
        && [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()));
    return texts.map(e => { const [a, b] = [light(ink(e)), light(ground(e))].sort((x, y) => y - x); return [(a + 0.05) / (b + 0.05), e.outerHTML.slice(0, 120)]; })
        .filter(([contrast]) => contrast < 4.5);";

#[tokio::test]
async fn texts_stand_out_in_light_and_dark_and_nothing_is_wider_than_a_phone() {
    let there = Furnished::with("some text").await;
    let Some(browser) = Browser::open(&there.bed, Scripts::Off).await else { return };
    let phone = json!({ "width": 420, "height": 800, "deviceScaleFactor": 1, "mobile": true });
    browser.protocol("Emulation.setDeviceMetricsOverride", phone).await;
    let mut grounds = Vec::new();
    for scheme in ["light", "dark"] {
        let feature = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        browser.protocol("Emulation.setEmulatedMedia", feature).await;
        for path in &there.paths {
            browser.go(path).await;
            assert_eq!(browser.ask(FAINT).await, json!([]), "{scheme} {path}");
            let width = browser.ask("return document.documentElement.scrollWidth").await;
            assert_eq!(width, 420, "{scheme} {path}");
        }
        grounds.push(browser.ask("return getComputedStyle(document.body).backgroundColor").await);
    }
    assert_ne!(grounds[0], grounds[1], "there are two schemes");
    browser.page.close().await.unwrap();
}
