//! Refusals: a client that a script, file or token is not for gets no octet of it.

use runtime::client_address::TrustedProxies;
use runtime::feed::FeedEvent;

use super::site::{MACHINE, OTHER, Site};

const PATH: &str = "/02-00-00-00-00-01/auto.ipxe";

#[tokio::test]
async fn another_address_gets_no_script_whatever_headers_it_sends() {
    let site = Site::start().await;
    let forged = format!("X-Forwarded-For: {MACHINE}");
    let by_element = format!("Forwarded: for={MACHINE}");
    for options in [&[][..], &["-H", &forged], &["-H", &by_element], &["-H", "Host: x"]] {
        let refused = site.curl(OTHER, options, PATH).await;
        assert_eq!((refused.status, &*refused.text()), (403, "not allowed\n"), "{options:?}");
    }
    assert_eq!(site.curl(OTHER, &["-H", &forged], "/auto.ipxe").await.status, 404);
    assert_eq!(site.curl(MACHINE, &[], "/02-00-00-00-00-09/auto.ipxe").await.status, 404);
}

#[tokio::test]
async fn a_refusal_is_401_if_the_site_is_configured_so() {
    let site = Site::with(|site| site.serving.refuse_by_401 = true).await;
    assert_eq!(site.curl(OTHER, &[], PATH).await.status, 401);
}

#[tokio::test]
async fn only_the_address_that_a_trusted_proxy_saw_itself_is_believed() {
    let proxy = format!("{OTHER}/32").parse().unwrap();
    let trusted = TrustedProxies::new([proxy]).unwrap();
    let site = Site::with(|site| site.serving.trusted_proxies = trusted).await;
    let forwarded = format!("X-Forwarded-For: 127.0.0.66, {MACHINE}");
    assert_eq!(site.curl(OTHER, &["-H", &forwarded], PATH).await.status, 200);
    for other in ["X-Forwarded-For: 127.0.0.66", "X-Forwarded-For: nonsense"] {
        assert_eq!(site.curl(OTHER, &["-H", other], PATH).await.status, 403, "{other}");
    }
}

#[tokio::test]
async fn a_token_is_valid_for_its_machine_and_its_site_only() {
    let site = Site::start().await;
    let kernel = site.kernel_url().await;
    assert_eq!(site.curl(MACHINE, &["-I"], &kernel).await.status, 200);
    let [by_list, by_element] =
        ["X-Forwarded-For: ", "Forwarded: for="].map(|h| format!("{h}{MACHINE}"));
    for headers in [&[][..], &["-H", &by_list], &["-H", &by_element]] {
        let stolen = site.curl(OTHER, headers, &kernel).await;
        assert_eq!((stolen.status, &*stolen.text()), (403, "not allowed\n"), "{headers:?}");
    }
    let other_site = Site::start().await;
    let foreign = kernel.replace("/v1/boot/", "/v1/boot/A");
    assert_eq!(other_site.curl(MACHINE, &[], &foreign).await.status, 403);
}

#[tokio::test]
async fn while_a_feed_is_disconnected_clients_get_503_with_retry_after() {
    let site = Site::start().await;
    let kernel = site.kernel_url().await;
    site.fleet.hardware(FeedEvent::Disconnected);
    for path in [PATH, &kernel] {
        let later = site.curl(MACHINE, &[], path).await;
        assert_eq!((later.status, later.header("retry-after")), (503, "5".into()), "{path}");
    }
}
