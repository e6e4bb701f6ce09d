// The rankings of p4src, as `make p4-rankings` lists them.
#include "../../shared/rankings/fixed.p4"
#include "../../shared/rankings/deadline.p4"
#include "../../v1model/include/rankings/deadline.p4"
#include "../../shared/rankings/attained.p4"
#include "../../v1model/include/rankings/attained.p4"
#include "../../shared/rankings/window.p4"
#include "../../v1model/include/rankings/window.p4"
#include "../../shared/rankings/dscp.p4"
#undef RANKING_VALUE
#undef RANKING_METADATA
#undef RANKING_ACTION
#undef RANKING_NAME
#undef RANKING_CONTROL
#undef RANKING_INSTANCE
#undef RANKING_APPLY
#undef RANKING_KEY_LASTS
