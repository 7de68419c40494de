-- Which database this was when a server last began with it: a restored dump is another. 0: the files beside it say so.
ALTER TABLE leadership ADD COLUMN home INTEGER NOT NULL DEFAULT 0;
