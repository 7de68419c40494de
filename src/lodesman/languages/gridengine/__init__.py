"""Words of Grid Engine: complexes and their values, host groups, user lists, projects, jc_list."""
