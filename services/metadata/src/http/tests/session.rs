//! IMDSv2: who gets a token, and who needs one.

use super::*;

#[tokio::test]
async fn a_token_repeats_its_time_to_live() {
    let answer = site().send(NODE1, "PUT", "/latest/api/token", &[(TTL, "21600")]).await;
    assert_eq!((answer.status, answer.header(TTL)), (200, Some("21600")));
    assert!(!answer.body.ends_with('\n'));
}

#[tokio::test]
async fn a_time_to_live_out_of_range_or_unclear_is_malformed() {
    let site = site();
    for ttl in ["", "0", "21601", "x", "+5", " 1.5", "99999999999999999999"] {
        site.send(NODE1, "PUT", "/latest/api/token", &[(TTL, ttl)]).await.refused(400);
    }
    site.send(NODE1, "PUT", "/latest/api/token", &[]).await.refused(400);
    site.send(NODE1, "PUT", "/latest/api/token", &[(TTL, "60"), (TTL, "60")]).await.refused(400);
}

#[tokio::test]
async fn a_token_is_given_neither_through_a_stranger_nor_under_a_date() {
    let site = site();
    for header in ["x-forwarded-for", "forwarded"] {
        let headers = [(TTL, "60"), (header, "for=198.51.100.50")];
        site.send(NODE1, "PUT", "/latest/api/token", &headers).await.refused(403);
    }
    site.send(NODE1, "PUT", "/2021-01-03/api/token", &[(TTL, "60")]).await.refused(403);
}

#[tokio::test]
async fn where_tokens_are_optional_only_a_bad_one_is_refused() {
    let site = site_of(TokenPolicy::Optional);
    site.get("/latest/meta-data/instance-id").await.says("i-0001");
    site.get_with(&site.token().await).await.says("i-0001");
    site.get_with("bad").await.refused(401);
}

#[tokio::test]
async fn where_tokens_are_required_only_a_good_one_is_let_in() {
    let site = site_of(TokenPolicy::Required);
    for path in ["/", "/latest/meta-data/instance-id", "/latest/user-data", "/latest/nothing"] {
        site.get(path).await.refused(401);
    }
    let token = site.token().await;
    site.get_with(&token).await.says("i-0001");
    site.get_with("bad").await.refused(401);
    let twice = [(TOKEN, token.as_str()), (TOKEN, "bad")];
    site.send(NODE1, "GET", "/latest/user-data", &twice).await.refused(401);
}

#[tokio::test]
async fn where_tokens_are_disabled_the_tree_is_closed() {
    let site = site_of(TokenPolicy::Disabled);
    site.get("/latest/meta-data/instance-id").await.refused(403);
    site.get_with("bad").await.refused(403);
    site.send(NODE1, "PUT", "/latest/api/token", &[(TTL, "60")]).await.refused(403);
}

#[tokio::test]
async fn a_token_ends_with_its_instance() {
    let site = site();
    let token = site.token().await;
    let mut next = node1();
    next.instance.as_mut().unwrap().id = "i-0002".into();
    site.index.put(next);
    site.send(NODE1, "GET", "/latest/user-data", &[(TOKEN, &token)]).await.refused(401);
}

/// A good token of an instance, or of whom it says, made so long ago.
fn made(instance_id: &str, site_key: u8, ago: u64) -> String {
    let then = SystemTime::now() - std::time::Duration::from_secs(ago);
    Tokens::new(&[site_key; 32]).mint(instance_id, 60, then).unwrap()
}

#[tokio::test]
async fn a_token_that_is_stale_or_another_machines_opens_nothing() {
    let site = site();
    let other = node2().instance_id().into_owned();
    site.get_with(&made("i-0001", 7, 0)).await.says("i-0001");
    for token in [made("i-0001", 7, 61), made(&other, 7, 0), made("i-0001", 8, 0)] {
        site.get_with(&token).await.refused(401);
    }
}

#[tokio::test]
async fn a_stolen_token_opens_nothing_from_another_address_whatever_it_says() {
    let (site, stolen) = (site(), made("i-0001", 7, 0));
    for (thief, status) in [("198.51.100.60", 401), (STRANGER, 404)] {
        for header in ["accept", "x-forwarded-for", "forwarded"] {
            let headers = [(TOKEN, stolen.as_str()), (header, "for=198.51.100.50")];
            for path in ["/latest/user-data", "/latest/meta-data/instance-id"] {
                site.send(thief, "GET", path, &headers).await.refused(status);
            }
        }
    }
}
