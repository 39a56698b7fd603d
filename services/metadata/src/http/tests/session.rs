//! IMDSv2 sessions.

use std::time::SystemTime;

use super::*;

#[tokio::test]
async fn a_token_repeats_its_time_to_live() {
    let answer = site().send(NODE1, "PUT", "/latest/api/token", &[(TTL, "21600")]).await;
    assert_eq!((answer.status, answer.header(TTL)), (200, Some("21600")));
    assert!(!answer.body.ends_with('\n'));
}

#[tokio::test]
async fn a_time_to_live_out_of_range_or_ambiguous_is_malformed() {
    let site = site();
    for ttl in ["", "0", "21601", "x", "+5", " 1.5", "99999999999999999999"] {
        site.send(NODE1, "PUT", "/latest/api/token", &[(TTL, ttl)]).await.refused(400);
    }
    site.send(NODE1, "PUT", "/latest/api/token", &[]).await.refused(400);
    site.send(NODE1, "PUT", "/latest/api/token", &[(TTL, "60"), (TTL, "60")]).await.refused(400);
}

#[tokio::test]
async fn a_token_is_refused_to_forwarded_requests_and_under_a_dated_version() {
    let site = site();
    for header in ["x-forwarded-for", "forwarded"] {
        let headers = [(TTL, "60"), (header, "for=198.51.100.50")];
        site.send(NODE1, "PUT", "/latest/api/token", &headers).await.refused(403);
    }
    site.send(NODE1, "PUT", "/2021-01-03/api/token", &[(TTL, "60")]).await.refused(403);
}

#[tokio::test]
async fn optional_tokens_are_refused_only_if_invalid() {
    let site = site_of(TokenPolicy::Optional);
    site.get("/latest/meta-data/instance-id").await.assert_body("i-0001");
    site.get_with(&site.token().await).await.assert_body("i-0001");
    site.get_with("bad").await.refused(401);
}

#[tokio::test]
async fn required_tokens_must_be_valid() {
    let site = site_of(TokenPolicy::Required);
    for path in ["/", "/latest/meta-data/instance-id", "/latest/user-data", "/latest/nothing"] {
        site.get(path).await.refused(401);
    }
    let token = site.token().await;
    site.get_with(&token).await.assert_body("i-0001");
    site.get_with("bad").await.refused(401);
    let twice = [(TOKEN, token.as_str()), (TOKEN, "bad")];
    site.send(NODE1, "GET", "/latest/user-data", &twice).await.refused(401);
}

#[tokio::test]
async fn disabled_tokens_close_the_tree() {
    let site = site_of(TokenPolicy::Disabled);
    site.get("/latest/meta-data/instance-id").await.refused(403);
    site.get_with("bad").await.refused(403);
    site.send(NODE1, "PUT", "/latest/api/token", &[(TTL, "60")]).await.refused(403);
}

#[tokio::test]
async fn a_token_is_invalid_for_the_next_instance() {
    let site = site();
    let token = site.token().await;
    let mut next = node1();
    next.instance.as_mut().unwrap().id = "i-0002".into();
    site.index.put(next);
    site.send(NODE1, "GET", "/latest/user-data", &[(TOKEN, &token)]).await.refused(401);
}

/// A token of this instance and site that was created `ago` seconds ago.
fn minted(instance_id: &str, site_key: u8, ago: u64) -> String {
    let then = SystemTime::now() - std::time::Duration::from_secs(ago);
    Tokens::new(&runtime::SiteKey::new([site_key; 32]))
        .unwrap()
        .mint(instance_id, 60, then)
        .unwrap()
}

#[tokio::test]
async fn a_token_that_is_expired_or_of_another_machine_is_refused() {
    let site = site();
    let other = node2().instance_id().into_owned();
    site.get_with(&minted("i-0001", 7, 0)).await.assert_body("i-0001");
    for token in [minted("i-0001", 7, 61), minted(&other, 7, 0), minted("i-0001", 8, 0)] {
        site.get_with(&token).await.refused(401);
    }
}

#[tokio::test]
async fn a_stolen_token_is_refused_from_another_address_whatever_the_headers() {
    let (site, stolen) = (site(), minted("i-0001", 7, 0));
    for (thief, status) in [("198.51.100.60", 401), (UNKNOWN, 404)] {
        for header in ["accept", "x-forwarded-for", "forwarded"] {
            let headers = [(TOKEN, stolen.as_str()), (header, "for=198.51.100.50")];
            for path in ["/latest/user-data", "/latest/meta-data/instance-id"] {
                site.send(thief, "GET", path, &headers).await.refused(status);
            }
        }
    }
}
