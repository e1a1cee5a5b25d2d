"""How a job is made: asked for, checked, packed, launched. For people's machines; none of it goes into Lambda."""
