-- The newest ad of each site: its text as it came, when it came by the clock of the server, and what it says in short,
-- as JSON (`answers.site_ads.AdEntry`).
CREATE TABLE site_ad (
    site        TEXT PRIMARY KEY,
    sequence    INTEGER NOT NULL,
    incarnation TEXT NOT NULL,
    lifetime    REAL NOT NULL,
    received_at REAL NOT NULL,
    entry       TEXT NOT NULL,
    text        TEXT NOT NULL
) WITHOUT ROWID;

-- What the ads of the last day said, in short.
CREATE TABLE site_ad_entry (
    id          INTEGER PRIMARY KEY,
    site        TEXT NOT NULL,
    received_at REAL NOT NULL,
    entry       TEXT NOT NULL
);
CREATE INDEX site_ad_entry_site ON site_ad_entry (site, received_at);
CREATE INDEX site_ad_entry_at ON site_ad_entry (received_at);

-- Pilots that were placed at a site since its ad.
CREATE INDEX pilot_site ON pilot (site, created_at);
