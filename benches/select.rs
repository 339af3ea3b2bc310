//! Picking one of forty accounts: the pure rank alone, and the pool's whole step with its lease; and
//! the swap of five hundred accounts.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on should stop")]

use std::{hint::black_box, path::Path};

use codex_edge::{
    accounts::pool::Pool,
    domain::{
        account::{Account, AccountId, Label},
        credential::{AccessToken, Credential},
        health::Tier,
        identity::{Claims, Login, LoginFile, PathId, resolve},
        select::{Candidate, select},
    },
};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use jiff::Timestamp;

const ACCOUNTS: usize = 40;
const MANY: usize = 500;

fn files(count: usize) -> Vec<LoginFile> {
    let file = |number: usize| {
        let token = AccessToken::new(format!("token-{number}").into()).unwrap();
        let login = Login {
            top_account_id: AccountId::parse(&format!("account-{number}")),
            tokens_account_id: None,
            id_token: Claims::default(),
            access_token: Claims::default(),
            email: None,
            credential: Credential::new(token, None),
            enabled: true,
        };
        LoginFile::new(PathId::from_relative(Path::new(&format!("{number}.json"))), login)
    };
    (0..count).map(file).collect()
}

fn selection(criterion: &mut Criterion) {
    let now = Timestamp::UNIX_EPOCH;
    let label = Label::parse("paaaaaa").unwrap();
    let resolved = resolve(files(ACCOUNTS), now);
    let ids: Vec<_> = resolved.iter().map(|it| it.id.clone()).collect();

    criterion.bench_function("select/rank_40", |bencher| {
        bencher.iter(|| {
            let candidates = ids.iter().enumerate().map(|(place, id)| Candidate {
                id,
                tier: Some(Tier::Ready),
                tried: false,
                active_turns: 1,
                last_used: (place as u64 * 7) % 41,
            });
            select(black_box(candidates))
        });
    });

    let pool = Pool::new();
    pool.publish(resolved.into_iter().map(|it| it.labelled(label.clone())).collect(), &[]);
    let snapshot = pool.snapshot();
    criterion.bench_function("select/pick_40", |bencher| {
        bencher.iter(|| pool.pick(black_box(&snapshot), &[], now));
    });
    let tried = &ids[..3];
    criterion.bench_function("select/pick_40_after_three", |bencher| {
        bencher.iter(|| pool.pick(black_box(&snapshot), black_box(tried), now));
    });
}

fn swap(criterion: &mut Criterion) {
    let label = Label::parse("paaaaaa").unwrap();
    let accounts = || -> Vec<Account> {
        let resolved = resolve(files(MANY), Timestamp::UNIX_EPOCH);
        resolved.into_iter().map(|it| it.labelled(label.clone())).collect()
    };
    let pool = Pool::new();
    pool.publish(accounts(), &[]);
    criterion.bench_function("select/publish_500", |bencher| {
        bencher.iter_batched(accounts, |it| pool.publish(it, &[]), BatchSize::LargeInput);
    });
}

criterion_group!(benches, selection, swap);
criterion_main!(benches);
