-- Pilots that lost their lease are cancelled at their batch systems until these say that they are gone: few, and found
-- without reading all pilots that ever were.
CREATE INDEX pilot_lost ON pilot (ended_at) WHERE state = 'Lost';
